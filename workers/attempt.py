"""Executing one attempt of a step: the function, its time limits, its heartbeats.

An attempt always comes to a result, a value or an error; only being cancelled by whoever started
it leaves it without one. Plain functions run in threads; a thread cannot be stopped, so one that
outlasts its limit goes on without effect: its result is late. Those that ask for a process have one,
which is killed (``task_pool``).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from types import CoroutineType
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.ids import PromiseId
from tidewheel.sdk import payload
from tidewheel.sdk.current_task import CurrentTask, enter_task
from tidewheel.sdk.definitions import TaskDefinition
from tidewheel.sdk.failures import error_of
from tidewheel.sdk.limits import Limits
from tidewheel.store.records import RunRef
from tidewheel.telemetry import switch
from tidewheel.telemetry.context import TraceContext
from tidewheel.telemetry.runs import Cause
from tidewheel.workers import telling
from tidewheel.workers.lanes import is_async
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

    def __init__(self, loop: asyncio.AbstractEventLoop, on_beat: Callable[[Any], None]) -> None:
        self._loop = loop
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


class Attempt(msgspec.Struct, kw_only=True):
    """One physical execution of one step, and what it is executed with."""

    run: RunRef
    event: ev.InvokeScheduled
    number: int
    owner: str
    #: Seconds since the step was scheduled; of interest only where it has limits.
    elapsed: float
    last_heartbeat: Any = None
    #: The closure of an operation, or the definition of a task.
    call: Callable[[], Any] | None = None
    definition: TaskDefinition | None = None
    on_beat: Callable[[Attempt, Any], None] = lambda _attempt, _details: None
    #: When it began to wait for a slot, by the loop's clock, and whether it has got one.
    asked_at: float = 0.0
    has_begun: bool = False
    #: The loop that hears its heartbeats, and what else its body can ask for; set by whoever executes it.
    loop: asyncio.AbstractEventLoop | None = None
    pulse: Pulse | None = None
    connection: Any = None
    #: Where in a trace it was asked for, the message it came by, and its span, if telemetry is on.
    trace: TraceContext | None = None
    cause: Cause | None = None
    span: Any = None
    _seen: CurrentTask | None = None

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of the step."""
        return str(PromiseId(self.run.promise.run, self.event.promise_id))

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.event.function_name}"

    def log_fields(self) -> dict[str, Any]:
        """What a log record that speaks of the attempt, or is written in it, says in fields of its own."""
        return {
            **self.run.log_fields(),
            "task": self.event.function_name,
            "step": self.event.promise_id,
            "attempt": self.number,
        }

    def waits_too_long(self) -> bool:
        """Tell whether the step should have been started before now."""
        limit = None if self.event.limits is UNSET else self.event.limits.schedule_to_start
        if limit is None or self.number > 1:
            return False
        return self.elapsed + asyncio.get_running_loop().time() - self.asked_at > limit

    def current_task(self) -> CurrentTask:
        """Return what the body may know: made when it is first asked for, in whichever thread."""
        if self._seen is None:
            assert self.loop is not None
            pulse = self.pulse or Pulse(self.loop, partial(self.on_beat, self))
            self._seen = CurrentTask(
                run_id=self.run.run_id,
                attempt=self.number,
                idempotency_key=self.idempotency_key,
                last_heartbeat=self.last_heartbeat,
                _beat=pulse.beat,
                _connection=self.connection,
            )
        return self._seen


async def execute(attempt: Attempt, *, bounds: Bounds, pulse: Pulse, threads: Threads | None) -> ev.Result:
    """Execute *attempt*, here if there are no *threads*; return its result, or the error it failed with."""
    event = attempt.event
    body = body_of(attempt) if threads is None else _in_thread(attempt, threads)
    return await bounded(event, body, lambda done: result_of(event, done, bounds.limits), bounds, pulse)


async def bounded(
    event: ev.InvokeScheduled,
    coroutine: Coroutine[Any, Any, T],
    result_of: Callable[[asyncio.Future[T]], ev.Result],
    bounds: Bounds,
    pulse: Pulse,
) -> ev.Result:
    """Await *coroutine* for as long as an attempt may last; one that is given up is cancelled."""
    body = asyncio.ensure_future(coroutine)
    if bounds.attempt_s is None and bounds.heartbeat_s is None:
        return await _unbounded(body, result_of)
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
        body.add_done_callback(hear)


async def _unbounded(
    body: asyncio.Future[T], result_of: Callable[[asyncio.Future[T]], ev.Result]
) -> ev.Result:
    """Await *body*. Whoever is cancelled here does not wait for it: it may take its time to end."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    body.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
    try:
        await ended
        return result_of(body)
    finally:
        body.cancel()
        body.add_done_callback(hear)


class BodyExited(Exception):
    """A body raised ``SystemExit`` or ``KeyboardInterrupt``: asyncio would end the whole process with it."""

    def __init__(self, problem: BaseException) -> None:
        super().__init__(str(problem))
        self.problem = problem


async def body_of(attempt: Attempt) -> Any:
    """Execute *attempt* here on the loop, without limits, and return its value."""
    attempt.has_begun = True
    enter_task(attempt)
    if switch.active is not None:
        telling.begin_attempt(switch.active, attempt)
    try:
        if attempt.call is not None:
            value = attempt.call()
        else:
            assert attempt.definition is not None
            value = _called(attempt.definition, attempt.event.input)
        # What an async function gives is the common case, and seen at once.
        if type(value) is CoroutineType or inspect.isawaitable(value):
            return await value
        return value
    except (SystemExit, KeyboardInterrupt) as problem:
        raise BodyExited(problem) from problem


async def _in_thread(attempt: Attempt, threads: Threads) -> Any:
    call = attempt.call
    if call is None:
        assert attempt.definition is not None
        call = bound_call(attempt.definition, attempt.event.input)
    enter_task(attempt)
    if switch.active is not None:
        telling.begin_attempt(switch.active, attempt)
    try:
        return await _value_of(call, threads)
    except (SystemExit, KeyboardInterrupt) as problem:
        raise BodyExited(problem) from problem


async def _value_of(call: Callable[[], Any], threads: Threads) -> Any:
    if is_async(call):
        return await call()
    value = await threads(call)
    return await value if inspect.isawaitable(value) else value


def result_of(event: ev.InvokeScheduled, body: asyncio.Future[Any], limits: Limits) -> ev.Result:
    """Return what *body*, which has ended, came to."""
    if body.cancelled():
        return ev.Result(error=error_of(asyncio.CancelledError("the step cancelled itself")))
    problem = body.exception()
    if isinstance(problem, BodyExited):
        return ev.Result(error=error_of(problem.problem))
    if problem is not None:
        return ev.Result(error=error_of(problem))
    try:
        value = payload.encode(body.result(), where=f"result of {event.function_name}")
        if not limits.is_small(value):
            limits.check_payload(value, f"the result of {event.function_name}")
    except InvalidRequest as refused:
        return ev.Result(error=error_of(refused))
    return ev.Result(ok=value)


def hear(body: asyncio.Future[Any]) -> None:
    """Take notice of how an abandoned body ends, so that asyncio does not complain."""
    if not body.cancelled():
        body.exception()


def bound_call(definition: TaskDefinition, given: list[Any]) -> Callable[[], Any]:
    """Return the task's function, ready to be called with its decoded input."""
    if inspect.iscoroutinefunction(definition.fn):

        async def call_async() -> Any:
            return await _called(definition, given)

        return call_async
    return partial(_called, definition, given)


def _called(definition: TaskDefinition, given: list[Any]) -> Any:
    arguments = payload.decode_args(definition.hints, given, f"input of {definition.name}")
    return definition.fn(*arguments)


def heartbeat_limit(event: ev.InvokeScheduled) -> float | None:
    """The seconds that may pass between heartbeats of a step."""
    return None if event.limits is UNSET else event.limits.heartbeat
