"""A run's events, read from the file."""

from __future__ import annotations

import sqlite3

from tidewheel.journal.events import Entry
from tidewheel.store.passages import entries_of
from tidewheel.store.statements import statements

_SQL = statements("sqlite", "journal")
_RUN_ID = statements("sqlite", "runs")["by_key"]
_RUN_ID_PLACE = 2


def read_entries(connection: sqlite3.Connection, key: bytes, first_seq: int, last_seq: int) -> list[Entry]:
    """Read the events of a run from *first_seq* to *last_seq*, both included."""

    def run_id() -> str:
        row = connection.execute(_RUN_ID, (key,)).fetchone()
        return key.hex() if row is None else str(row[_RUN_ID_PLACE])

    asked = {"run_key": key, "first_seq": first_seq, "last_seq": last_seq}
    rows = connection.execute(_SQL["read"], asked)
    return entries_of(rows, first_seq, last_seq, run_id)
