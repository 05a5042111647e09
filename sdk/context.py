"""``Context``: the durable verbs, with types.

Verbs are counted when they are called, so ``ctx.invoke`` and friends are plain functions
that return a promise: await it now, later, or hand it to ``asyncio.gather``.
"""

from __future__ import annotations

import datetime as dt
import functools
import uuid
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any, NoReturn, TypeVar, overload

from tidewheel.journal import events as ev
from tidewheel.journal.errors import InvalidRequest
from tidewheel.replay.commands import Commands
from tidewheel.replay.execution import Execution
from tidewheel.sdk import payload
from tidewheel.sdk.definitions import (
    CallOptions,
    WorkflowDefinition,
    definition_of,
)
from tidewheel.sdk.durations import Duration, positive_seconds, seconds
from tidewheel.sdk.errors import StepFailed
from tidewheel.sdk.failures import exception_for
from tidewheel.sdk.join_set import JoinSet
from tidewheel.sdk.promise import DurablePromise, typed
from tidewheel.sdk.retry import Retry

R = TypeVar("R")
T = TypeVar("T")


class Context:
    """What a workflow's code may durably do. One per run, made by Tidewheel."""

    def __init__(self, execution: Execution, definition: WorkflowDefinition) -> None:
        self._run_id = str(execution.run)
        self._definition = definition
        self._commands = Commands(execution)
        self._state = State(self._commands)

    @property
    def run_id(self) -> str:
        """The id of this run."""
        return self._run_id

    @property
    def state(self) -> State:
        """The run's remembered values: a dict whose changes are journaled."""
        return self._state

    # Steps

    @overload
    def invoke(
        self,
        fn: Callable[..., Awaitable[R]],
        *args: Any,
        key: str | None = ...,
        queue: str | None = ...,
        retry: Retry | None = ...,
        timeout: Duration | None = ...,
    ) -> DurablePromise[R]: ...
    @overload
    def invoke(
        self,
        fn: Callable[..., R],
        *args: Any,
        key: str | None = ...,
        queue: str | None = ...,
        retry: Retry | None = ...,
        timeout: Duration | None = ...,
    ) -> DurablePromise[R]: ...
    def invoke(
        self,
        fn: Callable[..., Any],
        *args: Any,
        key: str | None = None,
        queue: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
    ) -> DurablePromise[Any]:
        """Ask for a task, or for a workflow as a child run; await the promise for its result.

        The same *key* for the same function gives the same promise. A step that fails for
        good raises ``StepFailed``, or the class its task declares in ``raises=``. *timeout* is for
        one attempt of a task; a child run that takes longer is cancelled.
        """
        definition = definition_of(fn)
        if definition is None:
            raise _unregistered(fn)
        if key is None and queue is None and retry is None and timeout is None:
            given = payload.encode_args(definition.hints, args)
            return typed(self._commands.invoke(definition.plain, given, definition.decoder))
        options = _options(key, queue, retry, timeout)
        given = payload.encode_args(definition.hints, args)
        schedule = definition.schedule(options)
        promise = self._commands.invoke(schedule, given, definition.decoder, key=options.key)
        if isinstance(definition, WorkflowDefinition) and options.timeout is not None:
            # A child run is not an attempt that a worker could break off: the code gives up on it.
            message = f"{definition.name} did not finish within {options.timeout:g} s"
            problem = StepFailed(definition.name, ev.Error(type="TimeoutError", message=message))
            self._commands.give_up_after(promise, options.timeout, problem)
        return typed(promise)

    #: The same verb, for when the promise is awaited later.
    start = invoke

    @overload
    def run(
        self,
        key: str,
        fn: Callable[..., Awaitable[R]],
        *args: Any,
        queue: str | None = ...,
        retry: Retry | None = ...,
        timeout: Duration | None = ...,
    ) -> DurablePromise[R]: ...
    @overload
    def run(
        self,
        key: str,
        fn: Callable[..., R],
        *args: Any,
        queue: str | None = ...,
        retry: Retry | None = ...,
        timeout: Duration | None = ...,
    ) -> DurablePromise[R]: ...
    def run(
        self,
        key: str,
        fn: Callable[..., Any],
        *args: Any,
        queue: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
    ) -> DurablePromise[Any]:
        """Execute *fn* once, outside the deterministic loop, and journal its result under *key*.

        *fn* may be a closure or a lambda, sync or async. It is not retried unless *retry* says
        so. The same *key* again gives the same result.
        """
        registered = definition_of(fn)
        if registered is not None:
            message = f"{registered.name} is registered: use `await ctx.invoke({registered.name}, ...)`"
            raise InvalidRequest(message)
        if queue is not None:
            message = (
                f"ctx.run({key!r}) is executed where the workflow runs: make it a task to give it a queue"
            )
            raise InvalidRequest(message)
        options = _options(key, None, retry, timeout)
        hints = payload.signature_hints(fn, skip=0)
        schedule = ev.InvokeScheduled(
            promise_id="0",
            kind="operation",
            function_name=_operation_name(fn),
            retry_policy=options.retry,
            limits=options.limits(ev.InvokeLimits()),
        )
        given = payload.encode_args(hints, args)
        decoder = _OperationDecoder(key, hints.returns)
        execute = functools.partial(fn, *args)
        return typed(self._commands.invoke(schedule, given, decoder, key=key, execute=execute))

    def join_set(self) -> JoinSet:
        """Open a set of steps whose results come in completion order; use it in ``async with``."""
        return JoinSet(self._commands.join_set(), self.invoke)

    # Waiting

    def sleep(self, duration: Duration) -> DurablePromise[None]:
        """Wait durably: through restarts, for as long as it takes."""
        wait = seconds(duration, "ctx.sleep()")
        return typed(self._commands.sleep(wait, _Plain("ctx.sleep()", type(None))))

    @overload
    def signal(self, name: str, *, timeout: Duration | None = ...) -> DurablePromise[Any]: ...
    @overload
    def signal(self, name: str, *, into: type[T], timeout: Duration | None = ...) -> DurablePromise[T]: ...
    def signal(self, name: str, *, into: Any = Any, timeout: Duration | None = None) -> DurablePromise[Any]:
        """Wait for the next signal of *name* and give its payload, decoded *into* a type.

        Signals are buffered: one that came earlier is taken at once, oldest first. With a
        *timeout* the wait may end in ``TimeoutError``.
        """
        limit = positive_seconds(timeout, "ctx.signal(timeout=)")
        promise = self._commands.signal(name, _Plain(f"signal {name!r}", into))
        if limit is not None:
            problem = TimeoutError(f"no signal {name!r} within {limit:g} s")
            self._commands.give_up_after(promise, limit, problem)
        return typed(promise)

    @overload
    def promise(self, name: str, *, timeout: Duration | None = ...) -> DurablePromise[Any]: ...
    @overload
    def promise(self, name: str, *, into: type[T], timeout: Duration | None = ...) -> DurablePromise[T]: ...
    def promise(self, name: str, *, into: Any = Any, timeout: Duration | None = None) -> DurablePromise[Any]:
        """A promise that somebody outside resolves or rejects by *name*.

        Rejected, it raises ``StepFailed``; not resolved within *timeout*, ``TimeoutError``.
        """
        limit = positive_seconds(timeout, "ctx.promise(timeout=)")
        promise = self._commands.promise(name, _Plain(f"promise {name!r}", into))
        if limit is not None and promise.on_settled is None:
            problem = TimeoutError(f"promise {name!r} was not resolved within {limit:g} s")
            self._commands.give_up_after(promise, limit, problem)
        return typed(promise)

    # Values

    def now(self) -> dt.datetime:
        """The current time, aware, in UTC; the same on every replay."""
        return self._commands.now()

    def random(self) -> float:
        """A random float in [0, 1); the same on every replay."""
        return self._commands.random()

    def uuid(self) -> uuid.UUID:
        """A random UUID; the same on every replay."""
        return uuid.UUID(self._commands.uuid())

    # The end

    def continue_as_new(self, *args: Any) -> NoReturn:
        """End this segment and start the workflow again with *args* and an empty history.

        Raises; nothing after it runs. State and unconsumed signals are carried over, open
        children are cancelled.
        """
        given = payload.encode_args(self._definition.hints, args)
        raise self._commands.continue_as_new(given)


class State(MutableMapping[str, Any]):
    """The run's remembered values. Reading gives plain JSON data; each change is journaled."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def __getitem__(self, key: str) -> Any:
        """Return a copy: changing it in place changes nothing; assign it back to remember it."""
        return payload.encode(self._commands.state()[key])

    def __setitem__(self, key: str, value: Any) -> None:
        """Remember *value* under *key*."""
        name: object = key
        if not isinstance(name, str):
            message = f"ctx.state keys are strings, not {name!r}"
            raise InvalidRequest(message)
        self._commands.state_set(name, payload.encode(value, where=f"state[{name!r}]"))

    def __delitem__(self, key: str) -> None:
        """Forget *key*."""
        if key not in self._commands.state():
            raise KeyError(key)
        self._commands.state_clear(key)

    def __iter__(self) -> Iterator[str]:
        """Go through the keys, oldest first."""
        return iter(list(self._commands.state()))

    def __len__(self) -> int:
        """How many values are remembered."""
        return len(self._commands.state())

    def __repr__(self) -> str:
        """Show the values."""
        return f"State({self._commands.state()!r})"


class _Plain:
    """Decodes a payload into one type; failures become ``StepFailed``."""

    def __init__(self, step: str, hint: Any) -> None:
        self._step = step
        self._hint = hint

    def value(self, data: Any) -> Any:
        return payload.decode(data, self._hint, where=self._step)

    def error(self, error: ev.Error) -> BaseException:
        return exception_for(self._step, error, ())


class _OperationDecoder(_Plain):
    """Decodes the result of ``ctx.run``."""

    def value(self, data: Any) -> Any:
        return payload.decode(data, self._hint, where=f"result of {self._step}")


def _unregistered(fn: object) -> InvalidRequest:
    name = getattr(fn, "__name__", repr(fn))
    instead = f"decorate it with @app.task, or use ctx.run(key, {name})"
    return InvalidRequest(f"{name} is neither a task nor a workflow: {instead}")


def _options(
    key: str | None, queue: str | None, retry: Retry | None, timeout: Duration | None
) -> CallOptions:
    policy = None if retry is None else retry.policy()
    return CallOptions(key, queue, policy, positive_seconds(timeout, "timeout"))


def _operation_name(fn: Callable[..., Any]) -> str:
    name = getattr(fn, "__name__", type(fn).__name__)
    return "lambda" if name == "<lambda>" else name
