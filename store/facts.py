"""Which facts are written, and which are refused: one function per kind of fact.

Rule 1: what an attempt reports is written only if it is the step's current attempt, so a worker
that was believed dead and wakes up again changes nothing.
Rule 2: every fact is written at most once, by its own nature or by its dedupe key.
Rule 3: nothing is written after a run's end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tidewheel.journal import events as ev
from tidewheel.store.append import (
    Beat,
    Cancelled,
    Completed,
    Fact,
    Fired,
    Released,
    Resolved,
    Retrying,
    Signalled,
    Started,
    Verdict,
)
from tidewheel.store.page import Page, due_at
from tidewheel.store.records import StepRecord


def write_fact(page: Page, fact: Fact) -> Verdict:
    """Write *fact* if it may be, and say what became of it."""
    if page.run.ended_at is None:
        return _RULES[type(fact)](page, fact)
    if isinstance(fact, Signalled | Resolved) and page.rows.is_known(page.run.key, fact.key):
        return Verdict.DUPLICATE  # its sender asks again what became of it
    return Verdict.ENDED


def is_current(step: StepRecord, fact: Completed | Retrying) -> bool:
    """Tell whether *fact* reports the attempt that counts.

    An attempt that was not reported as started counts for the worker that the step was given to.
    """
    if step.state == "started":
        return fact.attempt == step.attempt
    if step.state == "parked" or fact.attempt != step.attempt + 1:
        return False
    return fact.overdue or (fact.owner is not None and fact.owner == step.owner)


def _started(page: Page, fact: Started) -> Verdict:
    step = page.step(fact.path)
    if step is not None and (step.state, step.attempt, step.owner) == ("started", fact.attempt, fact.owner):
        return Verdict.DUPLICATE
    if step is None or step.state not in ("scheduled", "retrying") or fact.attempt != step.attempt + 1:
        return Verdict.LATE
    if step.owner not in (None, fact.owner):
        return Verdict.LATE
    step.owner = fact.owner
    page.write(ev.InvokeStarted(promise_id=fact.path, attempt=fact.attempt), step)
    return Verdict.WRITTEN


def _completed(page: Page, fact: Completed) -> Verdict:
    step = page.step(fact.path)
    if step is None or not is_current(step, fact):
        return Verdict.LATE
    if step.state != "started":
        page.write(ev.InvokeStarted(promise_id=fact.path, attempt=fact.attempt), step)
    page.write(ev.InvokeCompleted(promise_id=fact.path, result=fact.result, attempt=fact.attempt), step)
    return Verdict.WRITTEN


def _retrying(page: Page, fact: Retrying) -> Verdict:
    step = page.step(fact.path)
    if step is None or not is_current(step, fact):
        return Verdict.LATE
    if step.state != "started":
        page.write(ev.InvokeStarted(promise_id=fact.path, attempt=fact.attempt), step)
    step.owner = fact.next_owner
    page.write(
        ev.InvokeRetrying(
            promise_id=fact.path, failed_attempt=fact.attempt, error=fact.error, retry_at=fact.retry_at
        ),
        step,
    )
    return Verdict.WRITTEN


def _released(page: Page, fact: Released) -> Verdict:
    step = page.step(fact.path)
    if step is None or step.state == "started" or step.owner != fact.owner:
        return Verdict.LATE
    step.owner = None
    if not step.abandoned and step.state != "parked":
        step.hints = 0
        page.set_due(step, page.now)
    return Verdict.WRITTEN


def _beat(page: Page, fact: Beat) -> Verdict:
    step = page.step(fact.path)
    if step is None or step.state != "started" or fact.attempt != step.attempt:
        return Verdict.LATE
    if fact.details is not None:
        step.beat = fact.details
    page.set_due(step, due_at(step, page.now))
    return Verdict.WRITTEN


def _fired(page: Page, fact: Fired) -> Verdict:
    if page.rows.timer(page.run.key, fact.path) is None:
        return Verdict.DUPLICATE
    page.write(ev.TimerFired(promise_id=fact.path))
    return Verdict.WRITTEN


def _signalled(page: Page, fact: Signalled) -> Verdict:
    if page.rows.is_known(page.run.key, fact.key):
        return Verdict.DUPLICATE
    page.rows.remember(page.run.key, fact.key)
    delivery = page.run.deliveries + 1
    page.write(ev.SignalDelivered(signal_name=fact.name, payload=fact.payload, delivery_id=delivery))
    return Verdict.WRITTEN


def _cancelled(page: Page, fact: Cancelled) -> Verdict:
    if page.run.cancelling:
        return Verdict.DUPLICATE
    page.write(ev.CancelRequested(reason=fact.reason))
    return Verdict.WRITTEN


def _resolved(page: Page, fact: Resolved) -> Verdict:
    if page.rows.is_known(page.run.key, fact.key):
        return Verdict.DUPLICATE
    promise = page.rows.promise(page.run.key, fact.name)
    if promise is None:
        return Verdict.UNKNOWN
    path, resolved = promise
    if resolved:
        return Verdict.RESOLVED
    page.rows.remember(page.run.key, fact.key)
    page.rows.put_promise(page.run.key, fact.name, path, resolved=True)
    page.write(ev.PromiseResolved(promise_id=path, result=fact.result))
    return Verdict.WRITTEN


Rule: TypeAlias = Callable[[Page, Any], Verdict]

_RULES: dict[type[Fact], Rule] = {
    Started: _started,
    Completed: _completed,
    Retrying: _retrying,
    Released: _released,
    Beat: _beat,
    Fired: _fired,
    Signalled: _signalled,
    Cancelled: _cancelled,
    Resolved: _resolved,
}
