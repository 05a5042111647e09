"""Runs as this process left them, so that what is appended to them next need not ask first.

A run is remembered with all that it has open, and with the *mark* of the transaction that wrote its row
last. Whoever changes anything of a run writes its row too, so a row that still bears the mark says that all
of it is as it was. The ledger then works over what is remembered, and the database writes what it came to
only if the marks are still there (``tidewheel_write_known_v1``). If they are not, nothing is written, what
is remembered is forgotten, and the append asks as if nothing had been known.

Decision: what the keeper does to open steps (when they are due, how often they were hinted at) it does
without the run's row. Whoever writes a step writes these two anew, so nothing is lost by not having seen
them.
"""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import msgspec

from tidewheel.journal.events import Entry
from tidewheel.store.page import NEAR
from tidewheel.store.postgres.changes import Changes
from tidewheel.store.postgres.known_changes import KnownChanges
from tidewheel.store.records import EventRecord, RunRecord, RunRef, StepRecord, TimerRecord


class NotRemembered(Exception):
    """The ledger asked for something that is not remembered."""


@dataclass(slots=True)
class Remembered:
    """A run, all its open steps and timers, and the mark of who wrote its row last."""

    run: RunRecord
    steps: dict[str, StepRecord]
    timers: dict[str, TimerRecord]
    mark: str


class Memory:
    """The runs that are remembered, at most so many; the one that was not used for longest is forgotten."""

    def __init__(self, runs_max: int) -> None:
        self._runs_max = runs_max
        self._runs: OrderedDict[RunRef, Remembered] = OrderedDict()

    @property
    def is_used(self) -> bool:
        """Whether anything is to be remembered: else every append asks first."""
        return self._runs_max > 0

    def learn(
        self, run: RunRecord, steps: Iterable[StepRecord], timers: Iterable[TimerRecord], mark: str
    ) -> None:
        """Remember a run that was read; whoever read it keeps its own copy."""
        if run.ended or not self.is_used:
            return
        copies = [msgspec.structs.replace(step) for step in steps]
        known = Remembered(
            msgspec.structs.replace(run),
            {step.path: step for step in copies},
            {timer.path: timer for timer in timers},
            mark,
        )
        self.keep(known)

    def keep(self, known: Remembered) -> None:
        """Remember a run as it was just written."""
        self._runs[known.run.ref] = known
        self._runs.move_to_end(known.run.ref)
        if len(self._runs) > self._runs_max:
            self._runs.popitem(last=False)

    def take(self, ref: RunRef) -> Remembered | None:
        """Return what is remembered of a run, and forget it: the ledger changes what it is given."""
        return self._runs.pop(ref, None)

    def forget_all(self) -> None:
        """Forget everything: a connection was lost, and the server may not be the one it was."""
        self._runs.clear()


class RememberedRows:
    """``Rows`` of one run, over what is remembered of it; *known* is None for a run that is not there yet."""

    def __init__(self, ref: RunRef, known: Remembered | None) -> None:
        self._ref = ref
        self._is_new = known is None
        self._run = None if known is None else known.run
        self._before = () if known is None else msgspec.structs.astuple(known.run)
        self.mark = "" if known is None else known.mark
        self._steps: dict[str, StepRecord] = {} if known is None else known.steps
        self._timers: dict[str, TimerRecord] = {} if known is None else known.timers
        self._stored_steps = frozenset(self._steps)
        self._changed_steps: dict[str, None] = {}
        self._new_timers: dict[str, TimerRecord] = {}
        self._ended_timers: list[str] = []
        self._promises: dict[str, tuple[str, bool]] = {}
        self._facts: list[str] = []
        self._step_ids: dict[str, int] = {}
        self._is_cleared = False
        self._events: list[EventRecord] = []
        self._outbox: list[tuple[int, int]] = []

    @property
    def key(self) -> bytes | None:
        """The run's key, if the run was there before: its mark is looked at."""
        return None if self._is_new or self._run is None else self._run.key

    def collect(self, changes: KnownChanges) -> None:
        """Add what has to be written."""
        run = self._run
        if run is None:
            return
        key = run.key
        if self._is_new:
            changes.rest.add_run(run, is_new=True)
        else:
            changes.change_run(self._before, run)
        changes.add_events(key, self._events)
        for first_seq, last_seq in self._outbox:
            changes.add_outbox(key, first_seq, last_seq)
        if self._is_cleared and not self._is_new:
            changes.clear(key)
        for path in self._changed_steps:
            self._collect_step(changes, key, path)
        if self._has_more:
            self._collect_more(changes.rest, key)

    def _collect_step(self, changes: KnownChanges, key: bytes, path: str) -> None:
        step, was_there = self._steps.get(path), path in self._stored_steps and not self._is_cleared
        if step is None:
            if was_there:
                changes.close_step(key, path)
        elif was_there:
            changes.rest.add_step(key, step)
        else:
            changes.open_step(key, step)

    @property
    def _has_more(self) -> bool:
        """Whether there is anything that few appends have."""
        return bool(self._new_timers or self._ended_timers or self._promises or self._facts or self._step_ids)

    def _collect_more(self, changes: Changes, key: bytes) -> None:
        for timer in self._new_timers.values():
            changes.add_timer(key, timer)
        for path in () if self._is_cleared else self._ended_timers:
            changes.end_timer(key, path)
        for name, (path, resolved) in self._promises.items():
            changes.add_promise(key, name, path, resolved=resolved)
        for fact in self._facts:
            changes.add_fact(key, fact)
        for step_id, attempt in self._step_ids.items():
            changes.add_step_id(key, step_id, attempt)

    def remembered(self, mark: str) -> Remembered | None:
        """Return the run as it is once that was written, if this process is about to write to it again.

        It is if it executes a step of the run, or has a timer of it in memory. Else whoever goes on with the
        run loads it first, and one that sleeps for a year takes no memory.
        """
        run = self._run
        if run is None or run.ended:
            return None
        goes_on = any(step.dispatch == "inline" for step in self._steps.values()) or any(
            timer.fire_at - run.updated_at <= NEAR for timer in self._timers.values()
        )
        return Remembered(run, self._steps, self._timers, mark) if goes_on else None

    # Runs

    def run(self, ref: RunRef) -> RunRecord | None:
        """Return the run's row."""
        if ref != self._ref:
            raise NotRemembered
        return self._run

    def run_by_key(self, key: bytes) -> RunRecord | None:
        """Return the run's row, if it is that run."""
        if self._run is None or key != self._run.key:
            raise NotRemembered
        return self._run

    def run_by_idempotency_key(self, namespace: str, idempotency_key: str) -> NoReturn:
        """Nobody here knows which run has it."""
        raise NotRemembered

    def put_run(self, run: RunRecord) -> None:
        """Keep the row; other runs than the one that is remembered are not written from here."""
        if self._run is None and run.ref == self._ref:
            self._run = run
        elif run is not self._run:
            raise NotRemembered

    # The journal

    def entries(self, key: bytes, first_seq: int, last_seq: int) -> list[Entry]:
        """The journal is not remembered."""
        raise NotRemembered

    def add_events(self, key: bytes, events: Sequence[EventRecord]) -> None:
        """Keep the next events."""
        self._events += events

    def add_outbox(self, key: bytes, first_seq: int, last_seq: int, at: dt.datetime) -> None:
        """Owe the event bus the public events in this range."""
        self._outbox.append((first_seq, last_seq))

    # What is open

    def step(self, key: bytes, path: str) -> StepRecord | None:
        """Return an open step."""
        return self._steps.get(path)

    def steps(self, key: bytes) -> list[StepRecord]:
        """Return all open steps, in the order in which they were scheduled."""
        return sorted(self._steps.values(), key=lambda step: step.scheduled_seq)

    def put_step(self, key: bytes, step: StepRecord) -> None:
        """Keep the row."""
        self._steps[step.path] = step
        self._changed_steps[step.path] = None

    def delete_step(self, key: bytes, path: str) -> None:
        """Forget the row."""
        self._steps.pop(path, None)
        self._changed_steps[path] = None

    def timer(self, key: bytes, path: str) -> TimerRecord | None:
        """Return an open timer."""
        return self._timers.get(path)

    def put_timer(self, key: bytes, timer: TimerRecord) -> None:
        """Keep a new timer."""
        self._timers[timer.path] = self._new_timers[timer.path] = timer

    def delete_timer(self, key: bytes, path: str) -> None:
        """Forget the row."""
        self._timers.pop(path, None)
        if self._new_timers.pop(path, None) is None:
            self._ended_timers.append(path)

    def promise(self, key: bytes, name: str) -> tuple[str, bool] | None:
        """Return a promise that was made just now; others are not remembered."""
        if name not in self._promises and not self._is_new:
            raise NotRemembered
        return self._promises.get(name)

    def put_promise(self, key: bytes, name: str, path: str, *, resolved: bool) -> None:
        """Keep the row."""
        self._promises[name] = (path, resolved)

    def clear_open(self, key: bytes) -> None:
        """Forget what the segment had open."""
        self._is_cleared = True
        self._steps, self._timers = {}, {}
        self._changed_steps.clear()
        self._new_timers.clear()
        self._ended_timers.clear()
        self._promises.clear()

    # What must happen once

    def is_known(self, key: bytes, fact: str) -> bool:
        """Tell whether the fact was written; of a run that was there before nobody here knows."""
        if fact in self._facts:
            return True
        if not self._is_new:
            raise NotRemembered
        return False

    def remember(self, key: bytes, fact: str) -> None:
        """Remember the fact."""
        self._facts.append(fact)

    def step_id_attempt(self, key: bytes, step_id: str) -> int:
        """Return the highest attempt of a keyed step of this id; of a run that was there nobody knows."""
        if step_id not in self._step_ids and not self._is_new:
            raise NotRemembered
        return self._step_ids.get(step_id, 0)

    def put_step_id(self, key: bytes, step_id: str, attempt: int) -> None:
        """Remember the id."""
        self._step_ids[step_id] = max(attempt, self.step_id_attempt(key, step_id))
