"""Damage to a good database, one kind for each rule that has to notice it.

Each function takes the connection and the effects that bodies wrote down, and returns the effects, perhaps
changed. Bytes are damaged with their checksum mended: no other rule is to notice in place of the right one.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(slots=True)
class Row:
    """A row of a journal, read."""

    first_seq: int
    last_seq: int
    at: int
    events: list[dict[str, Any]]
    #: What the run was before it, if it publishes something; its first part is the latest public event.
    context: list[Any] | None
    is_owed: bool


# Tools


def key_of(connection: psycopg.Connection[Any], run_id: str) -> bytes:
    """Return the key of a run."""
    (key,) = _one(connection, "SELECT run_key FROM tidewheel_runs WHERE run_id = %s", run_id)
    return bytes(key)


def journal_of(connection: psycopg.Connection[Any], run_id: str) -> list[Row]:
    """Return the rows of a run's journal, in their order."""
    found = connection.execute(
        "SELECT j.first_seq, j.last_seq, j.at, j.data, j.public, o.first_seq IS NOT NULL"
        " FROM tidewheel_journal AS j LEFT JOIN tidewheel_outbox AS o USING (run_key, first_seq)"
        " WHERE run_key = %s ORDER BY first_seq",
        (key_of(connection, run_id),),
    )
    return [
        Row(first, last, at, json.loads(data), None if public is None else json.loads(public), is_owed)
        for first, last, at, data, public, is_owed in found
    ]


def rewrite(connection: psycopg.Connection[Any], run_id: str, journal: list[Row]) -> None:
    """Let a run have this journal, with the checksums that it has, and owe the event bus what it says."""
    key = key_of(connection, run_id)
    run(connection, "DELETE FROM tidewheel_journal WHERE run_key = %s", key)
    run(connection, "DELETE FROM tidewheel_outbox WHERE run_key = %s", key)
    for row in journal:
        data = json.dumps(row.events).encode()
        public = None if row.context is None else json.dumps(row.context).encode()
        run(
            connection,
            "INSERT INTO tidewheel_journal (run_key, first_seq, last_seq, at, codec, data, checksum, public)"
            " VALUES (%s, %s, %s, %s, 'json', %s, %s, %s)",
            *(key, row.first_seq, row.last_seq, row.at, data, zlib.crc32(data), public),
        )
        if row.is_owed:
            run(
                connection,
                "INSERT INTO tidewheel_outbox (run_key, first_seq, last_seq, created_at, due_at)"
                " VALUES (%s, %s, %s, %s, %s)",
                *(key, row.first_seq, row.last_seq, row.at, row.at),
            )


def row_with(journal: list[Row], run_seq: int) -> Row:
    """Return the row that has the event with this number."""
    (found,) = (row for row in journal if row.first_seq <= run_seq <= row.last_seq)
    return found


def seq_of(connection: psycopg.Connection[Any], run_id: str, type_: str, number: int = 0) -> int:
    """Return where the run's journal has its event number *number* of this type; negative: from its end."""
    found = [
        row.first_seq + place
        for row in journal_of(connection, run_id)
        for place, event in enumerate(row.events)
        if event["type"] == type_
    ]
    return found[number]


def edit(connection: psycopg.Connection[Any], run_id: str, run_seq: int, **changes: Any) -> None:
    """Change fields of an event, with the checksum of its row."""
    journal = journal_of(connection, run_id)
    row = row_with(journal, run_seq)
    row.events[run_seq - row.first_seq] |= changes
    rewrite(connection, run_id, journal)


def edit_context(
    connection: psycopg.Connection[Any], run_id: str, run_seq: int, *where: int, to: Any
) -> None:
    """Change a part of the context of the row that has an event, which *where* leads to."""
    journal = journal_of(connection, run_id)
    part: Any = row_with(journal, run_seq).context
    for place in where[:-1]:
        part = part[place]
    part[where[-1]] = to
    rewrite(connection, run_id, journal)


def add(connection: psycopg.Connection[Any], run_id: str, type_: str, at_seq: int, **fields: Any) -> None:
    """Put an event into a journal, before the one that has *at_seq* now; public events keep their chain.

    It is written with what it comes before; after the last one, by itself.
    """
    journal = journal_of(connection, run_id)
    event = {"type": type_, **fields}
    if at_seq > journal[-1].last_seq:
        journal.append(Row(at_seq, at_seq, journal[-1].at, [event], None, is_owed=False))
    else:
        row = row_with(journal, at_seq)
        row.events.insert(at_seq - row.first_seq, event)
        row.last_seq += 1
        for later in journal[journal.index(row) + 1 :]:
            later.first_seq += 1
            later.last_seq += 1
        for one in journal:
            if one.context is not None and (one.context[0] or 0) >= at_seq:
                one.context[0] += 1
    rewrite(connection, run_id, journal)
    run(
        connection,
        "UPDATE tidewheel_runs SET last_seq = last_seq + 1, prev_seq = prev_seq + (prev_seq >= %s)::int"
        " WHERE run_id = %s",
        *(at_seq, run_id),
    )


def rewind(connection: psycopg.Connection[Any], run_id: str, before: int, *inline: dict[str, Any]) -> None:
    """Let a run be as it was before the row that has this event was written.

    *inline* are the steps that its row had open then; none that has a row of its own must have been.
    """
    journal = journal_of(connection, run_id)
    place = journal.index(row_with(journal, before))
    prev_seq = next(row.context[0] for row in journal[place:] if row.context is not None)
    rewrite(connection, run_id, journal[:place])
    run(
        connection,
        "UPDATE tidewheel_runs SET phase = 'Blocked', ended_at = NULL, last_seq = %s, prev_seq = %s,"
        " inline_steps = %s, owner = %s WHERE run_id = %s",
        *(journal[place - 1].last_seq, prev_seq, json.dumps(inline), "w-1" if inline else None, run_id),
    )


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
