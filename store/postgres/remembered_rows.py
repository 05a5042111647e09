"""``Rows`` of one run, over what is remembered of it, and what appends to it came to.

What the ledger asks for and is not remembered is ``NotRemembered``: the journal, promises, signals, keys of
steps, other runs. Then the append asks the database, as if nothing had been known.
"""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Iterable
from typing import Any, Final, NoReturn, Protocol

import msgspec

from tidewheel.journal.events import Entry
from tidewheel.store.page import NEAR
from tidewheel.store.postgres.changes import Changes
from tidewheel.store.postgres.sketches import sketch_of
from tidewheel.store.records import Passage, RunRecord, RunRef, StepRecord, TimerRecord

#: What may change in the row of a run that moves on; if anything else has, the whole row is written.
MOVING: Final = frozenset(
    {
        "phase", "last_seq", "token", "inline", "owner", "owner_message", "wake_at", "prev_seq",
        "has_unkeyed_steps", "updated_at", "ended_at",
    }
)  # fmt: skip
_unmoved = operator.attrgetter(
    *(field.name for field in msgspec.structs.fields(RunRecord) if field.name not in MOVING)
)


class NotRemembered(Exception):
    """The ledger asked for something that is not remembered."""


class Collection(Protocol):
    """Takes what the appends of a group came to, as it will be written."""

    #: What few appends have.
    rest: Changes

    def move(self, run: RunRecord, passage: Passage) -> None:
        """A run moved on, and this was written last."""

    def start(self, run: RunRecord, passage: Passage) -> None:
        """A run was started with this."""

    def add(self, key: bytes, passage: Passage) -> None:
        """Something was written beside that."""

    def clear(self, key: bytes) -> None:
        """All that a run had open goes, before anything new comes."""


class RememberedRows:
    """See the module; *run* is None for a run that is not there yet."""

    def __init__(
        self,
        ref: RunRef,
        run: RunRecord | None,
        steps: Iterable[StepRecord] = (),
        timers: Iterable[TimerRecord] = (),
    ) -> None:
        self._ref = ref
        self.record = run
        self._steps = {step.path: step for step in steps}
        self._timers = {timer.path: timer for timer in timers}
        self._is_new = run is None
        #: What does not move, as the database has it.
        self._before: tuple[Any, ...] = () if run is None else _unmoved(run)
        self._passages: list[Passage] = []
        self._begin_anew()

    def settle(self) -> None:
        """What the appends came to was written: the database has the run as it is here."""
        assert self.record is not None
        if self._is_new:
            self._before = _unmoved(self.record)
            self._is_new = False
        if self._has_more:
            self._begin_anew()
        self._passages = []

    def _begin_anew(self) -> None:
        """Nothing few appends have was written since."""
        self._has_more = False
        self._is_cleared = False
        self._stored_steps = frozenset(self._steps)
        self._changed_steps: dict[str, None] = {}
        self._new_timers: dict[str, TimerRecord] = {}
        self._ended_timers: list[str] = []
        self._promises: dict[str, tuple[str, bool]] = {}
        self._facts: list[str] = []
        self._step_ids: dict[str, int] = {}

    @property
    def is_new(self) -> bool:
        """Whether the run is not there yet."""
        return self._is_new

    def goes_on_here(self) -> bool:
        """Tell whether this process is about to write to the run again.

        It is if it executes a step of the run, or has a timer of it in memory. Else whoever goes on with the
        run loads it first, and one that sleeps for a year takes no memory.
        """
        run = self.record
        if run is None or run.ended_at is not None:
            return False
        if run.inline:
            return True
        return any(step.dispatch == "inline" for step in self._steps.values()) or any(
            timer.fire_at - run.updated_at <= NEAR for timer in self._timers.values()
        )

    def sketch(self) -> bytes | None:
        """Return the run as it was started just now; None if it was not, or has moved on since."""
        run = self.record
        if not self._is_new or run is None or run.last_seq > 0:
            return None
        return sketch_of(run, self._passages[0])

    # What has to be written

    def collect(self, into: Collection) -> None:
        """Add what has to be written."""
        run, passages = self.record, self._passages
        if run is None:
            return
        if self._is_new:
            self._collect_start(run, into)
        elif passages and _unmoved(run) == self._before:
            into.move(run, passages[-1])
            for passage in passages[:-1]:
                into.add(run.key, passage)
        else:
            self._before = _unmoved(run)
            into.rest.add_run(run, is_new=False)
            for passage in passages:
                into.add(run.key, passage)
        if self._has_more:
            self._collect_more(run.key, into)

    def _collect_start(self, run: RunRecord, into: Collection) -> None:
        passages = self._passages
        if len(passages) == 1 and _is_plain_start(run):
            into.start(run, passages[0])
            return
        into.rest.add_run(run, is_new=True)
        for passage in passages:
            into.add(run.key, passage)

    def _collect_more(self, key: bytes, into: Collection) -> None:
        rest = into.rest
        if self._is_cleared and not self._is_new:
            into.clear(key)
        for path in self._changed_steps:
            step, was_there = self._steps.get(path), path in self._stored_steps and not self._is_cleared
            if step is not None:
                rest.add_step(key, step)
            elif was_there:
                rest.close_step(key, path)
        for timer in self._new_timers.values():
            rest.add_timer(key, timer)
        for path in () if self._is_cleared else self._ended_timers:
            rest.end_timer(key, path)
        for name, (path, resolved) in self._promises.items():
            rest.add_promise(key, name, path, resolved=resolved)
        for fact in self._facts:
            rest.add_fact(key, fact)
        for step_id, attempt in self._step_ids.items():
            rest.add_step_id(key, step_id, attempt)

    # Runs

    def run(self, ref: RunRef) -> RunRecord | None:
        """Return the run's row."""
        if ref != self._ref:
            raise NotRemembered
        return self.record

    def run_by_key(self, key: bytes) -> RunRecord | None:
        """Return the run's row, if it is that run."""
        if self.record is None or key != self.record.key:
            raise NotRemembered
        return self.record

    def run_by_idempotency_key(self, namespace: str, idempotency_key: str) -> NoReturn:
        """Nobody here knows which run has it."""
        raise NotRemembered

    def put_run(self, run: RunRecord) -> None:
        """Keep the row; other runs than the one that is remembered are not written from here."""
        if run is self.record:
            return
        if self.record is not None or run.ref != self._ref:
            raise NotRemembered
        self.record = run

    # Admission

    def load(self, namespace: str, queue: str) -> None:
        """Take the queue of a run that is started to have no limit: what is written says whether that is so.

        A run that is there already asks because it may be queued, and nothing would say so of its limit.
        """
        if not self._is_new:
            raise NotRemembered

    # The journal

    def entries(self, key: bytes, first_seq: int, last_seq: int) -> list[Entry]:
        """The journal is not remembered."""
        raise NotRemembered

    def add_passage(self, key: bytes, passage: Passage) -> None:
        """Keep the next events."""
        if passage.codec != "json":
            raise NotRemembered  # a known write says nothing of codecs
        self._passages.append(passage)

    # What is open

    def step(self, key: bytes, path: str) -> StepRecord | None:
        """Return an open step that has a row."""
        return self._steps.get(path)

    def steps(self, key: bytes) -> list[StepRecord]:
        """Return all open steps that have rows, in the order in which they were scheduled."""
        return sorted(self._steps.values(), key=lambda step: step.scheduled_seq)

    def put_step(self, key: bytes, step: StepRecord) -> None:
        """Keep the row."""
        self._steps[step.path] = step
        self._changed_steps[step.path] = None
        self._has_more = True

    def delete_step(self, key: bytes, path: str) -> None:
        """Forget the row."""
        if self._steps.pop(path, None) is not None:
            self._changed_steps[path] = None
            self._has_more = True

    def timer(self, key: bytes, path: str) -> TimerRecord | None:
        """Return an open timer."""
        return self._timers.get(path)

    def put_timer(self, key: bytes, timer: TimerRecord) -> None:
        """Keep a new timer."""
        self._timers[timer.path] = self._new_timers[timer.path] = timer
        self._has_more = True

    def delete_timer(self, key: bytes, path: str) -> None:
        """Forget the row."""
        self._timers.pop(path, None)
        if self._new_timers.pop(path, None) is None:
            self._ended_timers.append(path)
            self._has_more = True

    def promise(self, key: bytes, name: str) -> tuple[str, bool] | None:
        """Return a promise that was made just now; others are not remembered."""
        if name not in self._promises and not self._is_new:
            raise NotRemembered
        return self._promises.get(name)

    def put_promise(self, key: bytes, name: str, path: str, *, resolved: bool) -> None:
        """Keep the row."""
        self._promises[name] = (path, resolved)
        self._has_more = True

    def clear_open(self, key: bytes) -> None:
        """Forget what the segment had open."""
        run = self.record  # not there yet, where the run is started just now
        has_promises = run is not None and run.has_promises
        if self._stored_steps or self._timers or self._ended_timers or has_promises:
            self._is_cleared = self._has_more = True
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
        self._has_more = True

    def step_id_attempt(self, key: bytes, step_id: str) -> int:
        """Return the highest attempt of a keyed step of this id; of a run that was there nobody knows."""
        if step_id not in self._step_ids and not self._is_new:
            raise NotRemembered
        return self._step_ids.get(step_id, 0)

    def put_step_id(self, key: bytes, step_id: str, attempt: int) -> None:
        """Remember the id."""
        self._step_ids[step_id] = max(attempt, self.step_id_attempt(key, step_id))
        self._has_more = True


#: What is of its own in the row of a run that was started, beside what moves.
_OWN: Final = frozenset(
    {
        "key", "namespace", "run_id", "workflow", "version", "digest", "queue", "started_id", "reply_to",
        "created_at",
    }
)  # fmt: skip
_usual = operator.attrgetter(
    *(field.name for field in msgspec.structs.fields(RunRecord) if field.name not in _OWN | MOVING)
)


def _is_plain_start(run: RunRecord) -> bool:
    """Tell whether all else of *run* is as the function in the database has it for a new one."""
    return _usual(run) == _PLAIN_START and run.started_id is not None


def _plain_start() -> Any:
    then = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    run = RunRecord(key=b"", namespace="", run_id="", workflow="", queue="", created_at=then, updated_at=then)
    return _usual(run)


_PLAIN_START: Final = _plain_start()
