"""The checks of safety: after every append, and once more over everything at the end.

What is judged after each append is judged here by code of its own, which shares nothing with the
engine; the journal's rules (``verify``) are asked again and again as a journal grows, and at the end
for each. What is written stays as it was: the rows are compared with a copy at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tidewheel.journal import events as ev
from tidewheel.journal.codec import decode
from tidewheel.journal.public import published
from tidewheel.journal.status import RunState, advance
from tidewheel.journal.verify import verify
from tidewheel.store.inline_steps import inline_steps
from tidewheel.store.memory import MemoryStore
from tidewheel.store.memory_rows import MemoryRows
from tidewheel.store.publishing import public_events
from tidewheel.store.records import Passage, RunRecord

Fail = Callable[[str], None]
#: A journal is verified when it has grown by this share and this many events since the last time.
GROWTH, GROWTH_MIN = 1.25, 8


class WatchedRows(MemoryRows):
    """The twin's rows, which say what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[bytes, Passage]] = []

    def add_passage(self, key: bytes, passage: Passage) -> None:
        """Append to the journal, and remember to look at it."""
        super().add_passage(key, passage)
        self.written.append((key, passage))


class RunWatch:
    """One run's journal, judged event by event."""

    def __init__(self, run_id: str, fail: Fail) -> None:
        self.run_id = run_id
        self._fail_with = fail
        self.stored: list[Passage] = []
        self.events = 0
        self.verified = 0
        self.terminal: ev.Event | None = None
        self.completed: dict[str, ev.Result] = {}
        self._attempts: dict[str, int] = {}
        self._is_started: dict[str, bool] = {}
        self._fired: set[str] = set()
        #: Delivery ids with their payloads, in order; those the code received; those of this segment.
        self.delivered: dict[int, object] = {}
        self.received: set[int] = set()
        self._to_carry: dict[int, object] = {}

    def see(self, passage: Passage) -> list[ev.Event]:
        """Judge what was written next."""
        events = decode(passage.data)
        if (passage.first_seq, passage.last_seq) != (self.events, self.events + len(events) - 1):
            self._fail(f"events {passage.first_seq} to {passage.last_seq} come after {self.events} events")
        self.stored.append(passage)
        self.events += len(events)
        for event in events:
            self._see(event)
        return events

    def _see(self, event: ev.Event) -> None:
        """Judge one more event."""
        if self.terminal is not None:
            self._fail(f"{type(event).__name__} follows {type(self.terminal).__name__}")
        match event:
            case ev.InvokeScheduled(promise_id=path):
                if path in self._attempts:
                    self._fail(f"step {path} is scheduled twice")
                self._attempts[path], self._is_started[path] = 0, False
            case ev.InvokeStarted() | ev.InvokeRetrying() | ev.InvokeCompleted():
                self._see_attempt(event)
            case ev.TimerFired(promise_id=path):
                if path in self._fired:
                    self._fail(f"timer {path} fires twice")
                self._fired.add(path)
            case ev.SignalDelivered() | ev.SignalReceived() | ev.ExecutionContinued():
                self._see_signal(event)
            case ev.ExecutionCompleted() | ev.ExecutionFailed() | ev.ExecutionCancelled():
                self.terminal = event
            case _:
                pass

    def _see_attempt(self, event: ev.InvokeStarted | ev.InvokeRetrying | ev.InvokeCompleted) -> None:
        path = event.promise_id
        attempt = event.failed_attempt if isinstance(event, ev.InvokeRetrying) else event.attempt
        if path in self.completed:
            self._fail(f"{type(event).__name__} of step {path}, which is completed")
        if isinstance(event, ev.InvokeStarted):
            if self._is_started[path] or attempt != self._attempts[path] + 1:
                self._fail(f"attempt {attempt} of {path} starts after attempt {self._attempts[path]}")
            self._attempts[path], self._is_started[path] = attempt, True
            return
        if not self._is_started[path] or attempt != self._attempts[path]:
            self._fail(f"attempt {attempt} of {path} ends, and {self._attempts[path]} is the latest")
        self._is_started[path] = False
        if isinstance(event, ev.InvokeCompleted):
            self.completed[path] = event.result

    def _see_signal(self, event: ev.SignalDelivered | ev.SignalReceived | ev.ExecutionContinued) -> None:
        match event:
            case ev.ExecutionContinued():
                if self._to_carry:
                    self._fail(f"signals {sorted(self._to_carry)} were not carried over")
                self._to_carry = {
                    number: payload
                    for number, payload in self.delivered.items()
                    if number not in self.received
                }
            case ev.SignalDelivered(delivery_id=number, payload=payload):
                if self._to_carry.pop(number, self) == payload:
                    return
                if number in self.delivered:
                    self._fail(f"delivery {number} comes twice")
                self.delivered[number] = payload
            case ev.SignalReceived(delivery_id=number, payload=payload):
                if number in self._to_carry:
                    self._fail(f"delivery {number} is received, and was not carried over")
                if number in self.received:
                    self._fail(f"delivery {number} is received twice")
                if self.delivered.get(number, self) != payload:
                    self._fail(f"delivery {number} is received as something else")
                self.received.add(number)

    def _fail(self, what: str) -> None:
        self._fail_with(f"run {self.run_id}: {what}")


class StoreWatch:
    """All journals of one world."""

    def __init__(self, store: MemoryStore, fail: Fail) -> None:
        self.rows = WatchedRows()
        store.rows = self.rows
        self._fail = fail
        self.runs: dict[bytes, RunWatch] = {}
        self.by_id: dict[str, RunWatch] = {}
        self.counts: Counter[str] = Counter()

    def look(self) -> list[str]:
        """Judge what was written since the last time, and say what it was."""
        written, self.rows.written = self.rows.written, []
        said = []
        for key, passage in written:
            watch = self.runs.get(key)
            if watch is None:
                run_id = self.rows.runs[key].run_id
                if run_id in self.by_id:
                    self._fail(f"there are two runs {run_id}")
                watch = self.runs[key] = self.by_id[run_id] = RunWatch(run_id, self._fail)
            names = [self._name(event) for event in watch.see(passage)]
            said.append(f"{watch.run_id} {passage.first_seq}: {' '.join(names)}")
            if watch.events >= GROWTH * watch.verified + GROWTH_MIN or watch.terminal is not None:
                self._verify(key, watch)
        return said

    def _name(self, event: ev.Event) -> str:
        self.counts[type(event).__name__] += 1
        path = getattr(event, "promise_id", None)
        attempt = getattr(event, "attempt", None) or getattr(event, "failed_attempt", None)
        return type(event).__name__ + (f"({path})" if path else "") + (f"#{attempt}" if attempt else "")

    def is_completed(self, run_id: str, path: str) -> bool:
        """Tell whether the step's completion is journaled."""
        watch = self.by_id.get(run_id)
        return watch is not None and path in watch.completed

    def open_runs(self) -> list[RunRecord]:
        """Return the rows of runs that have not ended."""
        return [run for run in self.rows.runs.values() if not run.ended]

    def describe(self, run: RunRecord) -> str:
        """Say where a run stands, for people."""
        last = ", ".join(
            type(entry.event).__name__ for entry in self.rows.entries(run.key, 0, run.last_seq)[-4:]
        )
        steps = ", ".join(
            f"{step.path} {step.function_name} {step.dispatch} {step.state}#{step.attempt} "
            f"owner {step.owner} due {step.due_at}{' abandoned' * step.abandoned}"
            for step in (*inline_steps(run), *self.rows.steps(run.key))
        )
        timers = ", ".join(
            f"{timer.path} due {timer.due_at}" for timer in self.rows.open_timers[run.key].values()
        )
        return (
            f"{run.run_id} is {run.phase}, parked {run.parked}, wake_at {run.wake_at}; last {last}; "
            f"steps [{steps}]; timers [{timers}]"
        )

    def look_at_everything(self) -> None:
        """Judge the whole store once more."""
        self.look()
        for key, watch in self.runs.items():
            self._verify(key, watch)
            if self.rows.journals[key] != watch.stored:
                self._fail(f"run {watch.run_id}: what was journaled has changed")
            run = self.rows.runs[key]
            self._compare_public(run)
            self._compare_row(run)
            self._compare_steps(run)

    def _verify(self, key: bytes, watch: RunWatch) -> None:
        watch.verified = watch.events
        breaches = verify(self._entries(self.rows.runs[key]))
        if breaches:
            self._fail(f"run {watch.run_id} breaks {breaches[:3]}")

    def _entries(self, run: RunRecord) -> list[ev.Entry]:
        return self.rows.entries(run.key, 0, run.last_seq)

    def _compare_public(self, run: RunRecord) -> None:
        told = []
        for passage in self.rows.journals[run.key]:
            entries = self.rows.entries(run.key, passage.first_seq, passage.last_seq)
            if passage.public is not None:
                told += public_events(run.ref, run.workflow, passage.public, entries)
        if told != published(self._entries(run), run.run_id, run.namespace):
            self._fail(f"run {run.run_id}: what its passages publish is not what the whole journal does")

    def _compare_row(self, run: RunRecord) -> None:
        state = RunState()
        entries = self._entries(run)
        for entry in entries:
            state = advance(state, entry.event)
        if (run.phase, run.cancelling) != (state.phase.value, state.cancelling):
            self._fail(f"run {run.run_id}: its row says {run.phase}, its journal {state.phase.value}")
        if run.last_seq != self.runs[run.key].events - 1:
            self._fail(
                f"run {run.run_id}: its row has {run.last_seq}, its journal {self.runs[run.key].events - 1}"
            )

    def _compare_steps(self, run: RunRecord) -> None:
        """Open steps are in the run's row or in rows of their own, and never in both."""
        in_run = [step.path for step in run.inline]
        in_rows = [step.path for step in self.rows.steps(run.key)]
        watch = self.runs[run.key]
        if len({*in_run, *in_rows}) < len(in_run) + len(in_rows):
            self._fail(f"run {run.run_id}: a step is there twice: {in_run} {in_rows}")
        if done := watch.completed.keys() & {*in_run, *in_rows}:
            self._fail(f"run {run.run_id}: steps {sorted(done)} are completed, and open")
