"""What the ledger asks of a store while it holds the lock.

Rule: a run that was given out is locked, and what is looked up after that is what is there now
("lock, then look"). Adapters keep it by asking in separate statements of one transaction.
"""

from __future__ import annotations

from typing import Protocol

from tidewheel.journal.events import Entry
from tidewheel.store.admission import QueueLoad
from tidewheel.store.records import Passage, RunRecord, RunRef, StepRecord, TimerRecord


class Rows(Protocol):
    """The rows of one transaction. A record that was given out may be changed, and is then put back."""

    # Runs

    def run(self, ref: RunRef) -> RunRecord | None:
        """Lock the run and return its row."""

    def run_by_key(self, key: bytes) -> RunRecord | None:
        """Lock the run with this key and return its row."""

    def run_by_idempotency_key(self, namespace: str, idempotency_key: str) -> RunRecord | None:
        """Lock the run that was started with this idempotency key and return its row."""

    def put_run(self, run: RunRecord) -> None:
        """Write the row, new or changed."""

    # Admission

    def load(self, namespace: str, queue: str) -> QueueLoad | None:
        """Lock the limit of a queue and return it with what counts in it by now; None if it has none."""

    # The journal

    def entries(self, key: bytes, first_seq: int, last_seq: int) -> list[Entry]:
        """Read the events of a run from *first_seq* to *last_seq*, both included."""

    def add_passage(self, key: bytes, passage: Passage) -> None:
        """Write the next events of a run, and owe them to the event bus if they publish anything."""

    # What is open in the run's current segment

    def step(self, key: bytes, path: str) -> StepRecord | None:
        """Return an open step that has a row of its own."""

    def steps(self, key: bytes) -> list[StepRecord]:
        """Return all open steps that have rows of their own."""

    def put_step(self, key: bytes, step: StepRecord) -> None:
        """Write the row, new or changed."""

    def delete_step(self, key: bytes, path: str) -> None:
        """The step has its result."""

    def timer(self, key: bytes, path: str) -> TimerRecord | None:
        """Return an open timer."""

    def put_timer(self, key: bytes, timer: TimerRecord) -> None:
        """Write a new timer."""

    def delete_timer(self, key: bytes, path: str) -> None:
        """The timer has fired or was cancelled; nothing if it is not there."""

    def promise(self, key: bytes, name: str) -> tuple[str, bool] | None:
        """Return the path of the promise called *name*, and whether it is resolved."""

    def put_promise(self, key: bytes, name: str, path: str, *, resolved: bool) -> None:
        """Write the row, new or changed."""

    def clear_open(self, key: bytes) -> None:
        """The segment is over: forget its steps, timers and promises."""

    # What must happen once

    def is_known(self, key: bytes, fact: str) -> bool:
        """Tell whether a fact with this dedupe key was written."""

    def remember(self, key: bytes, fact: str) -> None:
        """Remember the dedupe key of a fact."""

    def step_id_attempt(self, key: bytes, step_id: str) -> int:
        """Return the highest logical attempt for which a keyed step used *step_id*; 0 if none did."""

    def put_step_id(self, key: bytes, step_id: str, attempt: int) -> None:
        """Remember that a keyed step used *step_id*."""
