"""What an attempt's end means: a completion, a retry, or a step that waits for an operator. Pure."""

from __future__ import annotations

import datetime as dt

from msgspec import UNSET
from msgspec.structs import replace

from tidewheel.journal import events as ev
from tidewheel.journal.retry import ONCE, RetryPolicy, retry_delay
from tidewheel.store.append import Completed, Fact, Retrying
from tidewheel.store.page import NEAR

#: How often a closure of ``ctx.run`` without a retry policy is executed again after its worker was lost.
LOST_ATTEMPTS_MAX = 3
#: The error of an attempt whose worker was lost.
WORKER_LOST = "WorkerLost"
#: The error of an attempt that its worker broke off.
WORKER_STOPPED = "WorkerStopped"
#: The error of an attempt whose result the store did not take in time.
WRITE_BUDGET_EXCEEDED = "WriteBudgetExceeded"


def attempt_ended(  # noqa: PLR0913 - a pure function of all that its decision depends on
    event: ev.InvokeScheduled,
    *,
    attempt: int,
    result: ev.Result,
    scheduled_at: dt.datetime,
    now: dt.datetime,
    jitter: float,
    owner: str | None,
) -> Completed | Retrying:
    """Return the fact to write for an attempt that came to *result*."""
    path = event.promise_id
    if result.error is UNSET:
        return Completed(path=path, attempt=attempt, result=result, owner=owner)
    error = result.error
    delay = retry_delay(
        event.retry_policy or ONCE,
        attempt=attempt,
        error_type=error.type,
        retryable=error.retryable,
        elapsed=(now - scheduled_at).total_seconds(),
        jitter=jitter,
    )
    if delay is None or _is_past_close(event, (now - scheduled_at).total_seconds() + delay):
        return spent(event, attempt=attempt, error=error, owner=owner)
    near = delay <= NEAR.total_seconds() and event.dispatch == "inline"
    return Retrying(
        path=path,
        attempt=attempt,
        error=error,
        retry_at=now + dt.timedelta(seconds=delay),
        owner=owner,
        next_owner=owner if near else None,
    )


def _is_past_close(event: ev.InvokeScheduled, elapsed: float) -> bool:
    """Tell whether an attempt that begins *elapsed* seconds after the scheduling would be too late."""
    close = None if event.limits is UNSET else event.limits.schedule_to_close
    return close is not None and elapsed >= close


def spent(
    event: ev.InvokeScheduled, *, attempt: int, error: ev.Error, owner: str | None, overdue: bool = False
) -> Completed | Retrying:
    """Return the fact for a step that is not tried again: its error, or the wait for an operator."""
    path = event.promise_id
    limits = event.limits
    if limits is not UNSET and limits.on_exhausted == "park":
        return Retrying(path=path, attempt=attempt, error=error, retry_at=None, owner=owner, overdue=overdue)
    final = ev.Result(error=replace(error, attempts=attempt))
    return Completed(path=path, attempt=attempt, result=final, owner=owner, overdue=overdue)


def attempt_lost(
    event: ev.InvokeScheduled,
    *,
    attempt: int,
    worker: str | None,
    now: dt.datetime,
    next_owner: str | None,
    overdue: bool = False,
) -> Fact:
    """Return the fact for an attempt whose worker is gone: it counts like any other that failed.

    What was lost is tried again at once; the deadline and the kinds of error that are not retried
    are about failures of the step itself.
    """
    error = ev.Error(
        type=WORKER_LOST, message=f"worker {worker} was lost while it executed this", retryable=True
    )
    if attempt >= attempts_max(event.retry_policy):
        return spent(event, attempt=attempt, error=error, owner=worker, overdue=overdue)
    return Retrying(
        path=event.promise_id,
        attempt=attempt,
        error=error,
        retry_at=now,
        owner=worker,
        next_owner=next_owner,
        overdue=overdue,
    )


def attempt_stopped(event: ev.InvokeScheduled, *, attempt: int, worker: str, now: dt.datetime) -> Fact:
    """Return the fact for an attempt that its worker broke off, because it was told to stop."""
    error = ev.Error(type=WORKER_STOPPED, message=f"worker {worker} was stopped", retryable=True)
    if attempt >= attempts_max(event.retry_policy):
        return spent(event, attempt=attempt, error=error, owner=worker)
    return Retrying(path=event.promise_id, attempt=attempt, error=error, retry_at=now, owner=worker)


def attempt_unwritten(
    event: ev.InvokeScheduled,
    *,
    attempt: int,
    owner: str | None,
    taken_s: float,
    budget_s: float,
    now: dt.datetime,
) -> Completed | Retrying:
    """Return the fact for an attempt whose result was not written in time: it counts as one that was lost.

    It is tried again at once: this is written when the store takes writes again.
    """
    message = (
        f"the store took {taken_s:.1f} s over the result of {event.function_name}, and did not write it; "
        f"the budget is {budget_s:g} s"
    )
    error = ev.Error(type=WRITE_BUDGET_EXCEEDED, message=message, retryable=True)
    if attempt >= attempts_max(event.retry_policy):
        return spent(event, attempt=attempt, error=error, owner=owner)
    return Retrying(
        path=event.promise_id,
        attempt=attempt,
        error=error,
        retry_at=now,
        owner=owner,
        next_owner=owner if event.dispatch == "inline" else None,
    )


def attempts_max(policy: RetryPolicy | None) -> int:
    """How often a step may be executed, counting attempts whose worker was lost."""
    return LOST_ATTEMPTS_MAX if policy is None else policy.max_attempts


def limit_of(event: ev.InvokeScheduled, elapsed: float) -> float | None:
    """The most seconds an attempt that starts *elapsed* seconds after its scheduling may last."""
    limits = event.limits
    if limits is UNSET:
        return None
    bounds = [] if limits.timeout is None else [limits.timeout]
    if limits.schedule_to_close is not None:
        bounds.append(max(0.0, limits.schedule_to_close - elapsed))
    return min(bounds, default=None)


def timed_out(event: ev.InvokeScheduled, what: str) -> ev.Error:
    """Return the error of a step that took too long."""
    return ev.Error(type="TimeoutError", message=f"{event.function_name} {what}", retryable=True)


def start_timed_out(event: ev.InvokeScheduled) -> ev.Error:
    """Return the error of a step that nobody began in time. Trying again would be later still."""
    limits = ev.InvokeLimits() if event.limits is UNSET else event.limits
    message = f"{event.function_name} was not started within {limits.schedule_to_start or 0:g} s"
    return ev.Error(type="TimeoutError", message=message, retryable=False)
