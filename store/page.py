"""One run while its lock is held: events are written here, and the rows that follow from them.

Whatever an event means for the rows beside the journal is in ``_EFFECTS``, one function per event. All
events of one append become one row of the journal.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.journal.codec import encode
from tidewheel.journal.status import ENDED, FLAGS, NEXT, OPENS_AS, Phase
from tidewheel.store.inline_steps import INLINE_MAX, inline_steps, inlined, is_plain
from tidewheel.store.publishing import RUN_EVENTS, Publisher
from tidewheel.store.records import Passage, RunRecord, StepRecord, TimerRecord
from tidewheel.store.rows import Rows
from tidewheel.store.waiting import backoff
from tidewheel.telemetry.context import TraceContext

#: Whoever commits a timer or a retry that is due this soon arms it in memory; the keeper waits a little.
NEAR = dt.timedelta(seconds=30)
NEAR_GRACE = dt.timedelta(milliseconds=100)
#: A hint that nobody followed within this time is published again.
HINT_GRACE = dt.timedelta(seconds=1)
#: After this time somebody looks whether a step's worker is still there. Whoever gives up a worker makes its
#: steps due at once; but one that was given up may take a step before it announces itself again, and die.
OWNER_GRACE = dt.timedelta(seconds=60)


_PHASES = {phase.value: phase for phase in Phase}
#: Events that mean more to the run than a change of its phase.
_RARE = RUN_EVENTS | FLAGS.keys()


class Page:
    """The run's journal, open at its end."""

    __slots__ = (
        "_events",
        "_inline",
        "_next",
        "_phase",
        "_steps",
        "_to_reckon",
        "now",
        "owner",
        "publisher",
        "rows",
        "run",
    )

    def __init__(self, rows: Rows, run: RunRecord, now: dt.datetime) -> None:
        self.rows = rows
        self.run = run
        self.now = now
        #: Who executes the inline steps that are written from here on.
        self.owner: str | None = None
        self.publisher = Publisher(rows, run)
        self._phase = _PHASES[run.phase]
        self._next = NEXT[self._phase]
        self._events: list[ev.Event] = []
        #: The open steps that are in the run's row.
        self._inline = {step.path: step for step in inline_steps(run)} if run.inline else {}
        #: Those that were asked for, None if they are not open. They are put back, wherever they belong then.
        self._steps: dict[str, StepRecord | None] = {}
        #: Those of which it has to be said when the keeper looks at them, if they have rows.
        self._to_reckon: set[str] = set()

    def write(self, event: ev.Event, step: StepRecord | None = None) -> None:
        """Append *event* and bring the rows up to date; *step* is what it is about, if that is at hand."""
        run, kind = self.run, type(event)
        phase = self._next.get(kind)
        assert phase is not None, f"{run.run_id}: {kind.__name__} while {run.phase}"
        seq = run.last_seq = run.last_seq + 1
        self._events.append(event)
        effect = _EFFECTS.get(kind)
        if effect is not None:
            effect(self, event, seq, step)
        if kind in _RARE:
            self._write_rare(event, seq, phase)
        elif phase is not self._phase:
            self._enter(phase)

    def _write_rare(self, event: ev.Event, seq: int, phase: Phase) -> None:
        kind = type(event)
        if kind in RUN_EVENTS:
            self.publisher.run_event(ev.Entry(seq, self.now, event))
        if isinstance(event, ev.ExecutionStarted):
            phase = OPENS_AS[event.admission]
        if phase is not self._phase:
            self._enter(phase)
        for flag, value in FLAGS.get(kind, {}).items():
            setattr(self.run, flag, value)

    def _enter(self, phase: Phase) -> None:
        run = self.run
        self._phase, self._next = phase, NEXT[phase]
        run.phase = phase._value_  # quicker than ``value``
        if phase in ENDED:
            run.ended_at = self.now
            run.wake_at, run.hints, run.parked, run.parked_reason = None, 0, None, None

    # Steps

    def step(self, path: str) -> StepRecord | None:
        """Return the open step at *path*; changes to it are kept."""
        if path in self._steps:
            return self._steps[path]
        step = self._inline.get(path)
        if step is None:
            step = self.rows.step(self.run.key, path)
        self._steps[path] = step
        if step is not None:
            self.publisher.touches(step)
        return step

    def open_steps(self) -> list[StepRecord]:
        """Return all open steps of the segment."""
        known: dict[str, StepRecord | None] = {step.path: step for step in self.rows.steps(self.run.key)}
        known |= self._inline
        known |= self._steps
        return [step for step in known.values() if step is not None]

    def add_step(self, step: StepRecord) -> None:
        """Open a step."""
        self._steps[step.path] = step
        self._to_reckon.add(step.path)

    def close_step(self, path: str) -> None:
        """Close a step: it has its result."""
        self._steps[path] = None

    def reckon(self, path: str) -> None:
        """Something happened to a step: when the keeper has to look at it is reckoned in the end."""
        self._to_reckon.add(path)

    def set_due(self, step: StepRecord, at: dt.datetime | None) -> None:
        """Say when the keeper has to look at *step*."""
        step.due_at = at
        self._to_reckon.discard(step.path)

    def clear_open(self) -> None:
        """Close whatever the segment has open."""
        self.rows.clear_open(self.run.key)
        self._inline.clear()
        self._steps.clear()
        self.run.inline, self.run.owner, self.run.has_promises = (), None, False

    # In the end

    def flush(self, trace: TraceContext | None = None) -> None:
        """Put everything back; *trace* is where in a trace the events were written."""
        run, rows, events = self.run, self.rows, self._events
        run.updated_at = self.now
        if self._steps:
            self._put_steps()
        rows.put_run(run)
        if events:
            seq = run.last_seq
            context = self.publisher.context(trace)
            passage = Passage(seq - len(events) + 1, seq, self.now, encode(events), context)
            rows.add_passage(run.key, passage)
            # Or every later append of the transaction would write them again.
            self._events = []
            self.publisher.begin()

    def _put_steps(self) -> None:
        """Put what was asked for into the run's row or into rows of their own, wherever it belongs now."""
        run, key, rows = self.run, self.run.key, self.rows
        before, changed = self._inline, self._steps
        first_new_seq = run.last_seq - len(self._events) + 1
        owner = run.owner
        for step in changed.values():
            if step is not None and is_plain(step):
                owner = step.owner
        inline: dict[str, StepRecord] = {}
        for path, step in (before | changed).items():
            if step is None:
                if path not in before:
                    rows.delete_step(key, path)
            elif (
                (path in before or step.scheduled_seq >= first_new_seq)  # one that has a row keeps it
                and step.owner == owner
                and len(inline) < INLINE_MAX
                and is_plain(step)
                and step.queue == run.queue
            ):
                inline[path] = step
            else:
                if path in self._to_reckon or (path in before and step.due_at is None):
                    step.due_at = due_at(step, self.now)
                rows.put_step(key, step)
        self._inline, self._steps = inline, {}
        self._to_reckon.clear()
        run.inline = tuple([inlined(step) for step in inline.values()])
        run.owner = owner if inline else None


def due_at(step: StepRecord, now: dt.datetime, retry_at: dt.datetime | None = None) -> dt.datetime | None:
    """Return when the keeper has to look at *step*, if nothing happens to it before."""
    if step.abandoned or step.state == "parked":
        return None
    if step.close_by is None and step.start_by is None and step.dispatch == "inline" and _is_plain(step):
        return now + OWNER_GRACE  # as what follows would have it: nearly all steps are like this
    moments = [*_deadlines(step)]
    if step.kind == "workflow" and step.state == "scheduled":
        moments.append(now + HINT_GRACE)  # nobody has its workflow: its run has to be told so
    elif step.kind == "workflow":
        pass  # the child run has its own row, which says who owes it what
    elif step.state == "scheduled":
        moments.append(now + (HINT_GRACE if step.dispatch == "queued" else OWNER_GRACE))
    elif step.state == "started" and step.heartbeat_s is not None:
        # As long again for the worker, which notices first: it has the process's own clock.
        moments.append(now + dt.timedelta(seconds=2 * step.heartbeat_s))
    elif step.state == "started":
        moments.append(now + OWNER_GRACE)
    elif step.state == "retrying" and retry_at is not None:
        moments.append(retry_at + NEAR_GRACE if retry_at - now <= NEAR else retry_at)
    return min(moments, default=None)


def _is_plain(step: StepRecord) -> bool:
    """Tell whether *step* is a task that waits for its worker, or is being executed without a heartbeat."""
    is_waiting = step.state == "scheduled" or (step.state == "started" and step.heartbeat_s is None)
    return is_waiting and step.kind != "workflow"


def put_off(step: StepRecord, now: dt.datetime) -> None:
    """Let a step that was claimed be due again later: after a growing pause, or at its next deadline."""
    step.hints += 1
    coming = [deadline for deadline in _deadlines(step) if deadline > now]
    step.due_at = min([now + backoff(step.hints), *coming])


def _deadlines(step: StepRecord) -> list[dt.datetime]:
    """The moments after which the step fails if nothing happens to it; its worker comes first."""
    deadlines = [] if step.close_by is None else [step.close_by + NEAR_GRACE]
    if step.state == "scheduled" and step.start_by is not None:
        deadlines.append(step.start_by)
    return deadlines


# What each event does to the rows


def _schedules(page: Page, event: ev.InvokeScheduled, seq: int, _step: StepRecord | None) -> None:
    step_id = event.promise_id if event.key is UNSET else event.key
    step = StepRecord(
        path=event.promise_id,
        kind=event.kind,
        function_name=event.function_name,
        queue=page.run.queue if event.queue is UNSET else event.queue,
        dispatch=event.dispatch,
        scheduled_seq=seq,
        scheduled_at=page.now,
        owner=page.owner if event.dispatch == "inline" else None,
        step_id=step_id,
        key_part=step_id,
        logical_attempt=event.logical_attempt,
    )
    limits = event.limits
    if limits is not UNSET:
        step.start_by = _after(page.now, limits.schedule_to_start)
        step.close_by = _after(page.now, limits.schedule_to_close)
        step.heartbeat_s = limits.heartbeat
    page.add_step(step)
    page.publisher.scheduled(event, step)


def _begins(page: Page, event: ev.InvokeStarted, seq: int, step: StepRecord | None) -> None:
    step = step or page.step(event.promise_id)
    if step is not None:
        step.state, step.attempt, step.hints = "started", event.attempt, 0
        page.reckon(step.path)
        page.publisher.started(step, seq)


def _retries(page: Page, event: ev.InvokeRetrying, seq: int, step: StepRecord | None) -> None:
    step = step or page.step(event.promise_id)
    if step is not None:
        step.state, step.hints = "parked" if event.retry_at is None else "retrying", 0
        page.set_due(step, due_at(step, page.now, event.retry_at))
        if event.retry_at is None:
            page.publisher.parked(step, seq)


def _completes(page: Page, event: ev.InvokeCompleted, seq: int, step: StepRecord | None) -> None:
    step = step or page.step(event.promise_id)
    page.close_step(event.promise_id)
    if step is not None:
        page.publisher.completed(step, seq, is_error=event.result.error is not UNSET)


def _skips(page: Page, event: ev.StepSkipped, seq: int, step: StepRecord | None) -> None:
    step = step or page.step(event.promise_id)
    page.close_step(event.promise_id)
    if step is not None:
        page.publisher.publishes(seq)


def _sets_timer(page: Page, event: ev.TimerScheduled, _seq: int, _step: object) -> None:
    fire_at = event.fire_at or page.now
    due = fire_at + NEAR_GRACE if fire_at - page.now <= NEAR else fire_at
    timer = TimerRecord(path=event.promise_id, fire_at=fire_at, due_at=due)
    page.rows.put_timer(page.run.key, timer)


def _ends_timer(page: Page, event: ev.TimerFired | ev.TimerCancelled, _seq: int, _step: object) -> None:
    page.rows.delete_timer(page.run.key, event.promise_id)


def _promises(page: Page, event: ev.PromiseCreated, _seq: int, _step: object) -> None:
    page.run.has_promises = True
    page.rows.put_promise(page.run.key, event.name, event.promise_id, resolved=False)


def _delivers(page: Page, event: ev.SignalDelivered, _seq: int, _step: object) -> None:
    page.run.deliveries = max(page.run.deliveries, event.delivery_id)


def _opens(page: Page, event: ev.ExecutionStarted, seq: int, _step: object) -> None:
    page.run.segment_seq = seq
    page.run.version, page.run.digest = event.version, event.component_digest


def _waits(page: Page, event: ev.ExecutionAwaiting, _seq: int, _step: object) -> None:
    if event.version is not UNSET:
        page.run.version = event.version
    if event.component_digest is not UNSET:
        page.run.digest = event.component_digest


def _continues(page: Page, event: ev.ExecutionContinued, _seq: int, _step: object) -> None:
    page.run.first_position = event.next_position
    page.clear_open()


def _ends(page: Page, _event: ev.Event, _seq: int, _step: object) -> None:
    page.clear_open()


def _after(now: dt.datetime, seconds: float | None) -> dt.datetime | None:
    return None if seconds is None else now + dt.timedelta(seconds=seconds)


Effect: TypeAlias = Callable[[Page, Any, int, StepRecord | None], None]

_EFFECTS: dict[type[ev.Event], Effect] = {
    ev.InvokeScheduled: _schedules,
    ev.InvokeStarted: _begins,
    ev.InvokeRetrying: _retries,
    ev.InvokeCompleted: _completes,
    ev.StepSkipped: _skips,
    ev.TimerScheduled: _sets_timer,
    ev.TimerFired: _ends_timer,
    ev.TimerCancelled: _ends_timer,
    ev.PromiseCreated: _promises,
    ev.SignalDelivered: _delivers,
    ev.ExecutionStarted: _opens,
    ev.ExecutionAwaiting: _waits,
    ev.ExecutionContinued: _continues,
    ev.ExecutionCompleted: _ends,
    ev.ExecutionFailed: _ends,
    ev.ExecutionCancelled: _ends,
}
