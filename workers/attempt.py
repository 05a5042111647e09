"""Executing one attempt of a step: the function, its time limits, its heartbeats.

An attempt always comes to a result, a value or an error; only being cancelled by whoever started
it leaves it without one. Plain functions run in threads; a thread cannot be stopped, so one that
outlasts its limit goes on without effect: its result is late. Those that ask for a process have one,
which is killed (``task_pool``).
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.journal.errors import InvalidRequest
from tidewheel.sdk import payload
from tidewheel.sdk.current_task import CurrentTask, enter_task
from tidewheel.sdk.definitions import TaskDefinition
from tidewheel.sdk.failures import error_of
from tidewheel.sdk.limits import Limits
from tidewheel.workers.outcomes import timed_out

T = TypeVar("T")


class Threads(Protocol):
    """Where plain functions are executed."""

    def __call__(self, call: Callable[[], Any], /) -> Awaitable[Any]:
        """Execute *call* and return its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one attempt is held to, in seconds, and its result, in bytes."""

    attempt_s: float | None = None
    heartbeat_s: float | None = None
    limits: Limits


class Pulse:
    """When the body of an attempt last said that it is alive."""

    def __init__(self, on_beat: Callable[[Any], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_beat = on_beat
        self.last = self._loop.time()

    def beat(self, details: Any) -> None:
        """The body, in whichever thread, says that it is alive."""
        encoded = payload.encode(details, where="heartbeat details")
        self._loop.call_soon_threadsafe(self.heard, encoded)

    def heard(self, details: Any) -> None:
        """Take notice of a heartbeat, in the loop's own thread."""
        self.last = self._loop.time()
        self._on_beat(details)

    async def stops(self, heartbeat_s: float) -> None:
        """Return when no heartbeat came for *heartbeat_s*."""
        left = heartbeat_s
        while left > 0:
            await asyncio.sleep(left)
            left = self.last + heartbeat_s - self._loop.time()


async def execute(
    event: ev.InvokeScheduled,
    call: Callable[[], Any],
    task: CurrentTask,
    *,
    bounds: Bounds,
    pulse: Pulse,
    threads: Threads,
) -> ev.Result:
    """Execute one attempt and return its result, or the error it failed with."""
    body = contextvars.copy_context().run(_call, call, task, threads)
    return await bounded(event, body, lambda done: _result_of(event, done, bounds.limits), bounds, pulse)


async def bounded(
    event: ev.InvokeScheduled,
    coroutine: Coroutine[Any, Any, T],
    result_of: Callable[[asyncio.Future[T]], ev.Result],
    bounds: Bounds,
    pulse: Pulse,
) -> ev.Result:
    """Await *coroutine* for as long as an attempt may last; one that is given up is cancelled."""
    body = asyncio.ensure_future(coroutine)
    watch = None if bounds.heartbeat_s is None else asyncio.ensure_future(pulse.stops(bounds.heartbeat_s))
    waited_for: list[asyncio.Future[Any]] = [body] if watch is None else [body, watch]
    try:
        done, _ = await asyncio.wait(
            waited_for, timeout=bounds.attempt_s, return_when=asyncio.FIRST_COMPLETED
        )
        if body in done:
            return result_of(body)
        if watch in done:
            return ev.Result(error=timed_out(event, f"did not send a heartbeat for {bounds.heartbeat_s:g} s"))
        return ev.Result(error=timed_out(event, f"did not finish within {bounds.attempt_s:g} s"))
    finally:
        for one in waited_for:
            one.cancel()
        body.add_done_callback(_hear)


class BodyExited(Exception):
    """A body raised ``SystemExit`` or ``KeyboardInterrupt``: asyncio would end the whole process with it."""

    def __init__(self, problem: BaseException) -> None:
        super().__init__(str(problem))
        self.problem = problem


async def _call(call: Callable[[], Any], task: CurrentTask, threads: Threads) -> Any:
    enter_task(task)
    try:
        return await _value_of(call, threads)
    except (SystemExit, KeyboardInterrupt) as problem:
        raise BodyExited(problem) from problem


async def _value_of(call: Callable[[], Any], threads: Threads) -> Any:
    if inspect.iscoroutinefunction(getattr(call, "__wrapped__", call)):
        return await call()
    value = await threads(call)
    return await value if inspect.isawaitable(value) else value


def _result_of(event: ev.InvokeScheduled, body: asyncio.Future[Any], limits: Limits) -> ev.Result:
    if body.cancelled():
        return ev.Result(error=error_of(asyncio.CancelledError("the step cancelled itself")))
    problem = body.exception()
    if isinstance(problem, BodyExited):
        return ev.Result(error=error_of(problem.problem))
    if problem is not None:
        return ev.Result(error=error_of(problem))
    try:
        value = payload.encode(body.result(), where=f"result of {event.function_name}")
        limits.check_payload(value, f"the result of {event.function_name}")
    except InvalidRequest as refused:
        return ev.Result(error=error_of(refused))
    return ev.Result(ok=value)


def _hear(body: asyncio.Future[Any]) -> None:
    """Take notice of how an abandoned body ends, so that asyncio does not complain."""
    if not body.cancelled():
        body.exception()


def bound_call(definition: TaskDefinition, given: list[Any]) -> Callable[[], Any]:
    """Return the task's function, ready to be called with its decoded input."""
    fn = definition.fn
    if inspect.iscoroutinefunction(fn):

        async def call_async() -> Any:
            return await fn(*payload.decode_args(definition.hints, given, f"input of {definition.name}"))

        return call_async

    def call() -> Any:
        return fn(*payload.decode_args(definition.hints, given, f"input of {definition.name}"))

    return call


def heartbeat_limit(event: ev.InvokeScheduled) -> float | None:
    """The seconds that may pass between heartbeats of a step."""
    return None if event.limits is UNSET else event.limits.heartbeat
