"""Executing one attempt of a step: the real function, a fake, or a workflow's own closure."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidewheel.journal import events as ev
from tidewheel.sdk import payload
from tidewheel.sdk.current_task import CurrentTask, enter_task
from tidewheel.sdk.definitions import TaskDefinition
from tidewheel.sdk.failures import error_of


@dataclass(frozen=True, slots=True)
class Fake:
    """What a test says a task does, and how long that takes on the virtual clock."""

    fn: Callable[..., Any] | None = None
    takes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One physical execution of one step."""

    event: ev.InvokeScheduled
    number: int
    #: Virtual seconds the attempt lasts, and the most it may last.
    takes: float = 0.0
    limit: float | None = None

    @property
    def lasts(self) -> float:
        """How long until its outcome is known."""
        return self.takes if self.limit is None else min(self.takes, self.limit)

    @property
    def times_out(self) -> bool:
        """Whether the fake outlasts the step's limit."""
        return self.limit is not None and self.takes > self.limit


async def execute(attempt: Attempt, call: Callable[[], Any], task: CurrentTask) -> ev.Result:
    """Execute *attempt* and return its result, or the error it failed with."""
    if attempt.times_out:
        return ev.Result(error=_timed_out(attempt))
    try:
        async with asyncio.timeout(attempt.limit):
            value = await contextvars.copy_context().run(_call, call, task)
        return ev.Result(ok=payload.encode(value, where=f"result of {attempt.event.function_name}"))
    except TimeoutError as problem:
        return ev.Result(error=error_of(problem) if str(problem) else _timed_out(attempt))
    except asyncio.CancelledError as problem:
        body = asyncio.current_task()
        if body is None or body.cancelling():
            raise  # whoever executes the attempt drops it
        return ev.Result(error=error_of(problem))
    except Exception as problem:  # noqa: BLE001 - whatever a step raises is its outcome
        return ev.Result(error=error_of(problem))


async def _call(call: Callable[[], Any], task: CurrentTask) -> Any:
    enter_task(task)
    value = call()
    return await value if inspect.isawaitable(value) else value


def bound_call(definition: TaskDefinition, fake: Fake, given: list[Any]) -> Callable[[], Any]:
    """Return the function of a task, or its fake, ready to be called with its decoded input."""
    fn = definition.fn if fake.fn is None else fake.fn

    def call() -> Any:
        return fn(*payload.decode_args(definition.hints, given, f"input of {definition.name}"))

    return call


def _timed_out(attempt: Attempt) -> ev.Error:
    message = f"{attempt.event.function_name} did not finish within {attempt.limit:g} s"
    return ev.Error(type="TimeoutError", message=message, retryable=True)
