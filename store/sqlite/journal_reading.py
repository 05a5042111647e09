"""Events from rows: each row is checked before it is believed.

Rule: a row that is missing, or is not what was written, is ``Unreadable`` and names its run and place. The
other runs of the file are not concerned.
"""

from __future__ import annotations

import sqlite3
import zlib
from typing import Any

from tidewheel.journal.codec import StoredEvent, decode
from tidewheel.journal.errors import TidewheelError
from tidewheel.journal.events import Entry
from tidewheel.store.errors import Unreadable
from tidewheel.store.sqlite.columns import moment
from tidewheel.store.sqlite.statements import statements

_SQL = statements("journal")
_RUN_ID = statements("runs")["by_key"]
_RUN_ID_PLACE = 2


def read_entries(connection: sqlite3.Connection, key: bytes, first_seq: int, last_seq: int) -> list[Entry]:
    """Read the events of a run from *first_seq* to *last_seq*, both included."""
    entries: list[Entry] = []
    expected, at_stored, at = first_seq, None, None
    for row in connection.execute(_SQL["read"], (key, first_seq, last_seq)):
        if row[0] != expected:
            raise _unreadable(connection, key, expected, "its row is missing")
        if row[1] != at_stored or at is None:  # the events of one commit share their time
            at_stored, at = row[1], moment(row[1])
        entries.append(Entry(expected, at, _decoded(connection, key, row)))
        expected += 1
    if expected <= last_seq:
        raise _unreadable(connection, key, expected, "its row is missing")
    return entries


def checksum(data: bytes) -> int:
    """Return what finds a flipped bit in *data*."""
    return zlib.crc32(data)


def _decoded(connection: sqlite3.Connection, key: bytes, row: tuple[Any, ...]) -> Any:
    run_seq, _, type_, version, codec, data, expected_sum = row
    if not isinstance(data, bytes) or checksum(data) != expected_sum:
        raise _unreadable(connection, key, run_seq, "its bytes are not those that were written")
    try:
        return decode(StoredEvent(type_, version, codec, data))
    except TidewheelError as error:
        raise _unreadable(connection, key, run_seq, str(error)) from error


def _unreadable(connection: sqlite3.Connection, key: bytes, run_seq: int, reason: str) -> Unreadable:
    row = connection.execute(_RUN_ID, (key,)).fetchone()
    return Unreadable(key.hex() if row is None else row[_RUN_ID_PLACE], run_seq, reason)
