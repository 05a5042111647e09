"""The ledger's rows, over a connection that holds the file's write lock.

Every read is a statement of its own after ``BEGIN IMMEDIATE``, so it sees what is there now. Every write is
executed at once: what the ledger puts, its next question finds.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from tidewheel.journal.events import Entry
from tidewheel.store.admission import QueueLoad
from tidewheel.store.columns import RUN, STEP, TIMER, micros
from tidewheel.store.counting import Counters
from tidewheel.store.passages import checksum
from tidewheel.store.records import Passage, RunRecord, RunRef, StepRecord, TimerRecord
from tidewheel.store.sqlite.admission import load_of
from tidewheel.store.sqlite.journal_reading import read_entries
from tidewheel.store.statements import statements

_RUNS = statements("sqlite", "runs")
_OPEN = statements("sqlite", "open")
_JOURNAL = statements("sqlite", "journal")


class SqliteRows:
    """``Rows`` over *connection*, within its transaction."""

    def __init__(self, connection: sqlite3.Connection, counters: Counters) -> None:
        self._connection = connection
        self._counters = counters

    def _one(self, sql: str, *values: Any) -> Any:
        return self._connection.execute(sql, values).fetchone()

    # Runs

    def run(self, ref: RunRef) -> RunRecord | None:
        """Return the run's row."""
        row = self._one(_RUNS["by_ref"], *ref)
        return None if row is None else RUN.record(row)

    def run_by_key(self, key: bytes) -> RunRecord | None:
        """Return the row of the run with this key."""
        row = self._one(_RUNS["by_key"], key)
        return None if row is None else RUN.record(row)

    def run_by_idempotency_key(self, namespace: str, idempotency_key: str) -> RunRecord | None:
        """Return the row of the run that was started with this key."""
        row = self._one(_RUNS["by_idempotency_key"], namespace, idempotency_key)
        return None if row is None else RUN.record(row)

    def put_run(self, run: RunRecord) -> None:
        """Write the row, new or changed."""
        self._connection.execute(_RUNS["put"], RUN.row(run))

    # Admission

    def load(self, namespace: str, queue: str) -> QueueLoad | None:
        """Return the limit of a queue, and what counts in it."""
        return load_of(self._connection, namespace, queue)

    # The journal

    def entries(self, key: bytes, first_seq: int, last_seq: int) -> list[Entry]:
        """Read a range of the journal."""
        entries = read_entries(self._connection, key, first_seq, last_seq)
        self._counters.events_read += len(entries)
        return entries

    def add_passage(self, key: bytes, passage: Passage) -> None:
        """Write the next events of a run, and owe them to the event bus if they publish anything."""
        first_seq, last_seq, at = passage.first_seq, passage.last_seq, micros(passage.at)
        data, public = passage.data, passage.public
        row = (key, first_seq, last_seq, at, passage.codec, data, checksum(data), public)
        self._connection.execute(_JOURNAL["add"], row)
        if public is not None:
            self._connection.execute(_JOURNAL["owe"], (key, first_seq, last_seq, at, at))
        self._counters.events_written += last_seq - first_seq + 1

    # What is open

    def step(self, key: bytes, path: str) -> StepRecord | None:
        """Return an open step that has a row."""
        row = self._one(_OPEN["step"], key, path)
        return None if row is None else STEP.record(row)

    def steps(self, key: bytes) -> list[StepRecord]:
        """Return all open steps that have rows, in the order in which they were scheduled."""
        return [STEP.record(row) for row in self._connection.execute(_OPEN["steps"], (key,))]

    def put_step(self, key: bytes, step: StepRecord) -> None:
        """Write the row, new or changed."""
        self._connection.execute(_OPEN["put_step"], [key, *STEP.row(step)])

    def delete_step(self, key: bytes, path: str) -> None:
        """Forget the row."""
        self._connection.execute(_OPEN["delete_step"], (key, path))

    def timer(self, key: bytes, path: str) -> TimerRecord | None:
        """Return an open timer."""
        row = self._one(_OPEN["timer"], key, path)
        return None if row is None else TIMER.record(row)

    def put_timer(self, key: bytes, timer: TimerRecord) -> None:
        """Write a new timer."""
        self._connection.execute(_OPEN["put_timer"], [key, *TIMER.row(timer)])

    def delete_timer(self, key: bytes, path: str) -> None:
        """Forget the row."""
        self._connection.execute(_OPEN["delete_timer"], (key, path))

    def promise(self, key: bytes, name: str) -> tuple[str, bool] | None:
        """Return a promise's path, and whether it is resolved."""
        row = self._one(_OPEN["promise"], key, name)
        return None if row is None else (row[0], bool(row[1]))

    def put_promise(self, key: bytes, name: str, path: str, *, resolved: bool) -> None:
        """Write the row, new or changed."""
        self._connection.execute(_OPEN["put_promise"], (key, name, path, resolved))

    def clear_open(self, key: bytes) -> None:
        """Forget what the segment had open."""
        for statement in ("clear_steps", "clear_timers", "clear_promises"):
            self._connection.execute(_OPEN[statement], (key,))

    # What must happen once

    def is_known(self, key: bytes, fact: str) -> bool:
        """Tell whether the fact was written."""
        return self._one(_JOURNAL["is_known"], key, fact) is not None

    def remember(self, key: bytes, fact: str) -> None:
        """Remember the fact."""
        self._connection.execute(_JOURNAL["remember"], (key, fact))

    def step_id_attempt(self, key: bytes, step_id: str) -> int:
        """Return the highest attempt of a keyed step of this id, 0 if there was none."""
        row = self._one(_JOURNAL["step_id_attempt"], key, step_id)
        return 0 if row is None else int(row[0])

    def put_step_id(self, key: bytes, step_id: str, attempt: int) -> None:
        """Remember the id."""
        self._connection.execute(_JOURNAL["put_step_id"], (key, step_id, attempt))
