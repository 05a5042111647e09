"""How a segment ends: completed, failed, cancelled or continued, and what the next one begins with."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.replay.history import History
from tidewheel.replay.violation import Halted

DEADLOCK = (
    "the code waits for something that can never happen: an asyncio Event, Queue, Lock or Future that "
    "nothing in this run will set (wait on a task, timer, signal or promise instead)"
)


class ContinueAsNew(BaseException):
    """Raised by ``ctx.continue_as_new``: this segment is over, the next starts with new input."""

    def __init__(self, given: list[Any]) -> None:
        super().__init__("the run continues as new; do not catch this")
        self.given = given


class Describer(Protocol):
    """Turns an exception into the error a journal keeps."""

    def error(self, problem: BaseException) -> ev.Error:
        """Describe *problem*."""


def outcome(main: asyncio.Task[Any], describer: Describer, cancel: ev.CancelRequested | None) -> ev.Event:
    """Return the event that ends the segment; *cancel* is the request if the code was shown one."""
    if main.cancelled():
        if cancel is not None:
            return ev.ExecutionCancelled(reason=cancel.reason)
        error = ev.Error(type="CancelledError", message="the code cancelled itself; nobody asked it to")
        return ev.ExecutionFailed(error=error)
    problem = main.exception()
    if problem is None:
        return ev.ExecutionCompleted(result=ev.Result(ok=main.result()))
    continuing = _find(problem, ContinueAsNew)
    if continuing is not None:
        return ev.ExecutionContinued(input=continuing.given)
    return ev.ExecutionFailed(error=describer.error(problem))


def deadlock() -> ev.ExecutionFailed:
    """The end of code that waits, but for nothing that can come."""
    return ev.ExecutionFailed(error=ev.Error(type="Deadlock", message=DEADLOCK))


def next_segment(
    history: History,
    closed: ev.ExecutionContinued,
    state: dict[str, Any],
    *,
    now: dt.datetime,
    cancel_shown: bool,
) -> list[ev.Event]:
    """Return what opens the next segment: its start, and what nobody has consumed yet."""
    started = history.started
    assert started is not None
    following: list[ev.Event] = [
        ev.ExecutionStarted(
            component_digest=started.component_digest,
            input=closed.input,
            parent_id=started.parent_id,
            idempotency_key=started.idempotency_key,
            workflow=started.workflow,
            version=started.version,
            now=now,
            run_id=started.run_id,
            state=dict(state) if state else UNSET,
        )
    ]
    following += history.undelivered()
    if history.cancel is not None and not cancel_shown:
        following.append(history.cancel)
    return following


def report_unhandled(tasks: Iterable[asyncio.Task[Any]], report: Callable[[dict[str, Any]], None]) -> None:
    """Say what failed in branches that nobody awaited; it must not vanish with the run."""
    for task in tasks:
        problem = task.exception()
        if problem is not None and not isinstance(problem, (Halted, ContinueAsNew)):
            report({"message": f"{task.get_name()} failed and nothing awaited it", "exception": problem})


def _find(problem: BaseException, kind: type[ContinueAsNew]) -> ContinueAsNew | None:
    if isinstance(problem, kind):
        return problem
    if isinstance(problem, BaseExceptionGroup):
        for inner in problem.exceptions:
            found = _find(inner, kind)
            if found is not None:
                return found
    return None
