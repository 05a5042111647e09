"""What a step that came due needs. Pure: the keeper does what is decided here."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TypeAlias

from tidewheel.journal import events as ev
from tidewheel.store.append import Fact, Hint
from tidewheel.store.protocol import DueStep, LoadedStep
from tidewheel.store.records import StepRecord
from tidewheel.workers.outcomes import attempt_ended, attempt_lost, spent, start_timed_out, timed_out

#: Makes the fact that ends an attempt, once what scheduled it was read.
Verdict: TypeAlias = Callable[[LoadedStep, dt.datetime], Fact]


def judge(due: DueStep, now: dt.datetime) -> Hint | Verdict | None:
    """Return whom to hint, or how to end the attempt; None where whoever has the step will see to it."""
    step = due.step
    if step.close_by is not None and step.close_by <= now:
        return _not_closed
    if step.kind == "workflow":
        return Hint(run=due.run, queue=due.run_queue) if step.state == "scheduled" else None
    if step.dispatch == "inline":
        return (
            None if due.owner_is_alive and step.state != "parked" else Hint(run=due.run, queue=due.run_queue)
        )
    if step.state == "started":
        if not due.owner_is_alive:
            return _lost
        return _silent if step.heartbeat_s is not None else None
    if step.state == "scheduled" and step.start_by is not None and step.start_by <= now:
        return _not_started
    times = max(0, step.hints - 1)
    return Hint(run=due.run, queue=step.queue, path=step.path, attempt=step.attempt + 1, times=times)


def _current(step: StepRecord) -> int:
    """The attempt that an end given now would be of."""
    return step.attempt if step.state == "started" else step.attempt + 1


def _not_closed(loaded: LoadedStep, _now: dt.datetime) -> Fact:
    limits = (
        ev.InvokeLimits() if not isinstance(loaded.event.limits, ev.InvokeLimits) else loaded.event.limits
    )
    error = timed_out(loaded.event, f"was not completed within {limits.schedule_to_close or 0:g} s")
    return spent(loaded.event, attempt=_current(loaded.step), error=error, owner=None, overdue=True)


def _not_started(loaded: LoadedStep, _now: dt.datetime) -> Fact:
    error = start_timed_out(loaded.event)
    return spent(loaded.event, attempt=_current(loaded.step), error=error, owner=None, overdue=True)


def _lost(loaded: LoadedStep, now: dt.datetime) -> Fact:
    return attempt_lost(
        loaded.event,
        attempt=_current(loaded.step),
        worker=loaded.step.owner,
        now=now,
        next_owner=None,
        overdue=True,
    )


def _silent(loaded: LoadedStep, now: dt.datetime) -> Fact:
    error = timed_out(loaded.event, f"did not send a heartbeat for {loaded.step.heartbeat_s:g} s")
    return attempt_ended(
        loaded.event,
        attempt=_current(loaded.step),
        result=ev.Result(error=error),
        scheduled_at=loaded.step.scheduled_at,
        now=now,
        jitter=0.5,
        owner=None,
    )
