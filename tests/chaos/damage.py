"""Damage to a good database, one kind for each rule that has to notice it.

Each function takes the connection and the effects that bodies wrote down, and returns the effects, perhaps
changed. Bytes are damaged with their checksum mended: no other rule is to notice in place of the right one.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any, TypeAlias

import psycopg

from tests.chaos.ledger import Line

Damage: TypeAlias = Callable[[psycopg.Connection[Any], list[Line]], list[Line]]

ERRAND, OTHER, ORDER = "errand-000001", "errand-000002", "order-000004"
CHILD = f"{ORDER}:3"

#: By the rule that is to notice.
DAMAGES: dict[str, list[Damage]] = {}


def noticed_by(rule: str) -> Callable[[Damage], Damage]:
    """Register damage under the rule that is to notice it."""

    def register(damage: Damage) -> Damage:
        DAMAGES.setdefault(rule, []).append(damage)
        return damage

    return register


#: Where events of a run are named by their numbers; the order keeps the constraints while they change.
_NUMBERED = (
    ("tidewheel_events", ("run_seq", "prev_seq")),
    ("tidewheel_outbox", ("last_seq", "first_seq")),
    ("tidewheel_runs", ("last_seq", "prev_seq")),
)


# Tools


def key_of(connection: psycopg.Connection[Any], run_id: str) -> bytes:
    """Return the key of a run."""
    (key,) = _one(connection, "SELECT run_key FROM tidewheel_runs WHERE run_id = %s", run_id)
    return bytes(key)


def seq_of(connection: psycopg.Connection[Any], run_id: str, type_: str, number: int = 0) -> int:
    """Return where the run's journal has its event number *number* of this type; negative: from its end."""
    found = connection.execute(
        "SELECT run_seq FROM tidewheel_events WHERE run_key = %s AND type = %s ORDER BY run_seq",
        (key_of(connection, run_id), type_),
    ).fetchall()
    return int(found[number][0])


def edit(connection: psycopg.Connection[Any], run_id: str, run_seq: int, **changes: Any) -> None:
    """Change fields of an event, with its checksum."""
    key = key_of(connection, run_id)
    (data,) = _one(
        connection, "SELECT data FROM tidewheel_events WHERE run_key = %s AND run_seq = %s", key, run_seq
    )
    changed = json.dumps(json.loads(data) | changes).encode()
    connection.execute(
        "UPDATE tidewheel_events SET data = %s, checksum = %s WHERE run_key = %s AND run_seq = %s",
        (changed, zlib.crc32(changed), key, run_seq),
    )


def add(connection: psycopg.Connection[Any], run_id: str, type_: str, at_seq: int, **fields: Any) -> None:
    """Put an event into a journal, before the one that has *at_seq* now; public events keep their chain."""
    key, data = key_of(connection, run_id), json.dumps(fields).encode()
    # Far away first: no two may have the same number, not even for a moment.
    for table, columns in _NUMBERED:
        for column in columns:
            _shift(connection, f"{table}.{column}", key, at_seq, 1_000_000)
        for column in reversed(columns):
            _shift(connection, f"{table}.{column}", key, 1_000_000, -999_999)
    connection.execute(
        "INSERT INTO tidewheel_events (run_key, run_seq, at, type, version, codec, data, checksum)"
        " SELECT run_key, %s, updated_at, %s, 1, 'json', %s, %s FROM tidewheel_runs WHERE run_key = %s",
        (at_seq, type_, data, zlib.crc32(data), key),
    )


def _shift(connection: psycopg.Connection[Any], where: str, key: bytes, least: int, by: int) -> None:
    table, _, column = where.partition(".")
    statement = f"UPDATE {table} SET {column} = {column} + %s WHERE run_key = %s AND {column} >= %s"  # noqa: S608 - our own names
    run(connection, statement, by, key, least)


def last_seq(connection: psycopg.Connection[Any], run_id: str) -> int:
    """Return the number of the run's last event."""
    (seq,) = _one(connection, "SELECT last_seq FROM tidewheel_runs WHERE run_id = %s", run_id)
    return int(seq)


def run(connection: psycopg.Connection[Any], sql: str, *values: Any) -> None:
    """Execute damage that is one statement."""
    connection.execute(sql.encode(), values)


def _one(connection: psycopg.Connection[Any], sql: str, *values: Any) -> tuple[Any, ...]:
    found = connection.execute(sql.encode(), values).fetchone()
    assert found is not None
    return tuple(found)
