"""What appends came to, row by row, until it is written: one collection for all runs of a transaction."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec

from tidewheel.store.postgres.json_rows import RUN, STEP, TIMER, to_hex
from tidewheel.store.postgres.written import Written
from tidewheel.store.records import Passage, RunRecord, StepRecord, TimerRecord


class Changes:
    """Rows by table, as the function in the database takes them."""

    def __init__(self) -> None:
        self._rows: defaultdict[str, list[Any]] = defaultdict(list)
        self._passages: list[tuple[bytes, Passage]] = []

    def add_run(self, run: RunRecord, *, is_new: bool) -> None:
        """A run's row, new or changed."""
        self._rows["new_runs" if is_new else "runs"].append(RUN.written(run))

    def add_passage(self, key: bytes, passage: Passage) -> None:
        """The next events of a run; the event bus is owed what they publish."""
        self._passages.append((key, passage))

    def clear(self, key: bytes) -> None:
        """All that a run had open goes, before anything new comes."""
        self._rows["cleared"].append(to_hex(key))

    def add_step(self, key: bytes, step: StepRecord) -> None:
        """An open step, new or changed."""
        self._rows["steps"].append(STEP.written(step, run_key=to_hex(key)))

    def close_step(self, key: bytes, path: str) -> None:
        """A step that is open no more."""
        self._rows["closed_steps"].append({"run_key": to_hex(key), "path": path})

    def add_timer(self, key: bytes, timer: TimerRecord) -> None:
        """A new timer."""
        self._rows["timers"].append(TIMER.written(timer, run_key=to_hex(key)))

    def end_timer(self, key: bytes, path: str) -> None:
        """A timer that is over, if it was there."""
        self._rows["ended_timers"].append({"run_key": to_hex(key), "path": path})

    def add_promise(self, key: bytes, name: str, path: str, *, resolved: bool) -> None:
        """A promise, new or changed."""
        row = {"run_key": to_hex(key), "name": name, "path": path, "resolved": resolved}
        self._rows["promises"].append(row)

    def add_fact(self, key: bytes, fact: str) -> None:
        """A fact that must not happen twice."""
        self._rows["facts"].append({"run_key": to_hex(key), "fact": fact})

    def add_step_id(self, key: bytes, step_id: str, attempt: int) -> None:
        """An id that a keyed step has used."""
        row = {"run_key": to_hex(key), "step_id": step_id, "attempt": attempt}
        self._rows["step_ids"].append(row)

    def written(self) -> Written:
        """Return all of it."""
        return Written(dict(self._rows), self._passages)

    @property
    def is_empty(self) -> bool:
        """Whether there are no rows that are not of the journal."""
        return not self._rows

    def as_json(self) -> bytes:
        """Return the rows that are not of the journal."""
        return msgspec.json.encode(self._rows)
