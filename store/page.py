"""One run while its lock is held: events are written here, and the rows that follow from them.

Whatever an event means for the rows beside the journal is in ``_EFFECTS``, one function per event.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.journal.codec import encode
from tidewheel.journal.status import ENDED, FLAGS, Phase, next_phase
from tidewheel.store.publishing import Publisher
from tidewheel.store.records import EventRecord, RunRecord, StepRecord, TimerRecord
from tidewheel.store.rows import Rows
from tidewheel.store.waiting import backoff

#: Whoever commits a timer or a retry that is due this soon arms it in memory; the keeper waits a little.
NEAR = dt.timedelta(seconds=30)
NEAR_GRACE = dt.timedelta(milliseconds=100)
#: A hint that nobody followed within this time is published again.
HINT_GRACE = dt.timedelta(seconds=1)
#: After this time somebody looks whether a step's worker is still there. Whoever gives up a worker makes its
#: steps due at once; but one that was given up may take a step before it announces itself again, and die.
OWNER_GRACE = dt.timedelta(seconds=60)


class Page:
    """The run's journal, open at its end."""

    def __init__(self, rows: Rows, run: RunRecord, now: dt.datetime) -> None:
        self.rows = rows
        self.run = run
        self.now = now
        #: Who executes the inline steps that are written from here on.
        self.owner: str | None = None
        self._phase = Phase(run.phase)
        self._publisher = Publisher(rows, run)
        self._events: list[EventRecord] = []
        self._public: list[int] = []
        self._steps: dict[str, StepRecord | None] = {}

    def write(self, event: ev.Event) -> None:
        """Append *event* and bring the rows up to date."""
        run, kind = self.run, type(event)
        phase = next_phase(self._phase, event)
        assert phase is not None, f"{run.run_id}: {kind.__name__} while {run.phase}"
        seq = run.last_seq = run.last_seq + 1
        effect = _EFFECTS.get(kind)
        step = None if effect is None else effect(self, event, seq)
        prev_seq = run.prev_seq
        public = self._publisher.publish(event, seq, self.now, step)
        if public is None:
            self._events.append(EventRecord(run_seq=seq, at=self.now, stored=encode(event)))
        else:
            self._public.append(seq)
            self._events.append(
                EventRecord(
                    run_seq=seq,
                    at=self.now,
                    stored=encode(event),
                    public_key=public.key,
                    prev_seq=prev_seq,
                    public=public.header,
                )
            )
        if phase is not self._phase:
            self._enter(phase)
        if kind in FLAGS:
            for flag, value in FLAGS[kind].items():
                setattr(run, flag, value)

    def _enter(self, phase: Phase) -> None:
        run = self.run
        self._phase, run.phase = phase, phase.value
        if phase in ENDED:
            run.ended_at = self.now
            run.wake_at, run.hints, run.parked, run.parked_reason = None, 0, None, None

    def step(self, path: str) -> StepRecord | None:
        """Return the open step at *path*; changes to it are kept."""
        if path not in self._steps:
            self._steps[path] = self.rows.step(self.run.key, path)
        return self._steps[path]

    def open_steps(self) -> list[StepRecord]:
        """Return all open steps of the segment."""
        known = {step.path: step for step in self.rows.steps(self.run.key)}
        known |= {path: step for path, step in self._steps.items() if step is not None}
        return [step for path, step in known.items() if self._steps.get(path, step) is not None]

    def add_step(self, step: StepRecord) -> None:
        """Open a step."""
        self._steps[step.path] = step

    def close_step(self, path: str) -> None:
        """Close a step: it has its result."""
        self._steps[path] = None

    def clear_open(self) -> None:
        """Close whatever the segment has open."""
        self.rows.clear_open(self.run.key)
        self._steps.clear()

    def flush(self) -> None:
        """Put everything back."""
        run, rows = self.run, self.rows
        run.updated_at = self.now
        rows.put_run(run)
        for path, step in self._steps.items():
            if step is None:
                rows.delete_step(run.key, path)
            else:
                rows.put_step(run.key, step)
        if self._events:
            rows.add_events(run.key, self._events)
        if self._public:
            rows.add_outbox(run.key, self._public[0], self._public[-1], self.now)
        # Or every later append of the transaction would write them again.
        self._events, self._public, self._steps = [], [], {}


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


def _schedules(page: Page, event: ev.InvokeScheduled, seq: int) -> StepRecord:
    limits = ev.InvokeLimits() if event.limits is UNSET else event.limits
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
        start_by=_after(page.now, limits.schedule_to_start),
        close_by=_after(page.now, limits.schedule_to_close),
        heartbeat_s=limits.heartbeat,
        step_id=step_id,
        key_part=step_id,
        logical_attempt=event.logical_attempt,
    )
    step.due_at = due_at(step, page.now)
    page.add_step(step)
    return step


def _begins(page: Page, event: ev.InvokeStarted, _seq: int) -> StepRecord | None:
    step = page.step(event.promise_id)
    if step is not None:
        step.state, step.attempt = "started", event.attempt
        step.due_at, step.hints = due_at(step, page.now), 0
    return step


def _retries(page: Page, event: ev.InvokeRetrying, _seq: int) -> StepRecord | None:
    step = page.step(event.promise_id)
    if step is not None:
        step.state = "parked" if event.retry_at is None else "retrying"
        step.due_at, step.hints = due_at(step, page.now, event.retry_at), 0
    return step


def _completes(page: Page, event: ev.InvokeCompleted, _seq: int) -> StepRecord | None:
    step = page.step(event.promise_id)
    page.close_step(event.promise_id)
    return step


def _sets_timer(page: Page, event: ev.TimerScheduled, _seq: int) -> None:
    fire_at = event.fire_at or page.now
    due = fire_at + NEAR_GRACE if fire_at - page.now <= NEAR else fire_at
    timer = TimerRecord(path=event.promise_id, fire_at=fire_at, due_at=due)
    page.rows.put_timer(page.run.key, timer)


def _ends_timer(page: Page, event: ev.TimerFired | ev.TimerCancelled, _seq: int) -> None:
    page.rows.delete_timer(page.run.key, event.promise_id)


def _promises(page: Page, event: ev.PromiseCreated, _seq: int) -> None:
    page.rows.put_promise(page.run.key, event.name, event.promise_id, resolved=False)


def _delivers(page: Page, event: ev.SignalDelivered, _seq: int) -> None:
    page.run.deliveries = max(page.run.deliveries, event.delivery_id)


def _opens(page: Page, event: ev.ExecutionStarted, seq: int) -> None:
    page.run.segment_seq = seq
    page.run.version, page.run.digest = event.version, event.component_digest


def _waits(page: Page, event: ev.ExecutionAwaiting, _seq: int) -> None:
    if event.version is not UNSET:
        page.run.version = event.version
    if event.component_digest is not UNSET:
        page.run.digest = event.component_digest


def _continues(page: Page, event: ev.ExecutionContinued, _seq: int) -> None:
    page.run.first_position = event.next_position
    page.clear_open()


def _ends(page: Page, _event: ev.Event, _seq: int) -> None:
    page.clear_open()


def _after(now: dt.datetime, seconds: float | None) -> dt.datetime | None:
    return None if seconds is None else now + dt.timedelta(seconds=seconds)


Effect: TypeAlias = Callable[[Page, Any, int], StepRecord | None]

_EFFECTS: dict[type[ev.Event], Effect] = {
    ev.InvokeScheduled: _schedules,
    ev.InvokeStarted: _begins,
    ev.InvokeRetrying: _retries,
    ev.InvokeCompleted: _completes,
    ev.StepSkipped: _completes,
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
