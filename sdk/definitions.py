"""What ``@app.task`` and ``@app.workflow`` remember about a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.ids import check_name
from tidewheel.journal.retry import RetryPolicy
from tidewheel.replay.execution import Policy
from tidewheel.sdk.failures import exception_for
from tidewheel.sdk.payload import IMMUTABLE, Hints, decode, signature_hints

#: Where a decorated function keeps its definition.
_ATTRIBUTE = "__tidewheel__"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDefinition:
    """A plain function, sync or async, executed with retries outside replay."""

    name: str
    fn: Callable[..., Any]
    hints: Hints
    retry: RetryPolicy
    limits: ev.InvokeLimits = field(default_factory=ev.InvokeLimits)
    queue: str | None = None
    raises: tuple[type[Exception], ...] = ()
    transactional: bool = False
    inline: bool = True
    #: Executed in a process of its own.
    process: bool = False
    #: What asks for this task where the call adds nothing, and what reads its result: made once.
    plain: ev.InvokeScheduled = field(init=False, repr=False, compare=False)
    decoder: StepDecoder = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepare what every call needs."""
        object.__setattr__(self, "plain", self.schedule(CallOptions()))
        object.__setattr__(self, "decoder", StepDecoder(self.name, self.hints, self.raises))

    def schedule(self, options: CallOptions) -> ev.InvokeScheduled:
        """The event that asks for this task, before it has an identity and an input."""
        queue = options.queue or self.queue
        return ev.InvokeScheduled(
            promise_id="0",
            kind="function",
            function_name=self.name,
            retry_policy=options.retry or self.retry,
            dispatch="inline" if self.inline and options.queue is None else "queued",
            queue=queue or UNSET,
            limits=options.limits(self.limits),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowDefinition:
    """An ``async def`` that takes a ``Context`` and is replayed from its journal."""

    name: str
    fn: Callable[..., Any]
    hints: Hints
    #: What tells two versions of the code apart.
    digest: str
    version: str = ""
    queue: str | None = None
    policy: Policy = field(default_factory=Policy)
    on_violation: Literal["fail", "park"] = "fail"
    pin: Literal["version", "digest"] = "version"
    #: What asks for this workflow where the call adds nothing, and what reads its result: made once.
    plain: ev.InvokeScheduled = field(init=False, repr=False, compare=False)
    decoder: StepDecoder = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepare what every call needs."""
        object.__setattr__(self, "plain", self.schedule(CallOptions()))
        object.__setattr__(self, "decoder", StepDecoder(self.name, self.hints, ()))

    def schedule(self, options: CallOptions) -> ev.InvokeScheduled:
        """The event that asks for this workflow as a child run, before it has an identity and an input."""
        if options.retry is not None:
            message = f"{self.name} is a workflow: a child run is not retried; retry the tasks in it"
            raise InvalidRequest(message)
        return ev.InvokeScheduled(
            promise_id="0",
            kind="workflow",
            function_name=self.name,
            dispatch="queued",
            queue=options.queue or self.queue or UNSET,
        )


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What a single call says differently from its definition."""

    key: str | None = None
    queue: str | None = None
    retry: RetryPolicy | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        """Refuse names that cannot be journaled."""
        if self.key is not None:
            check_name(self.key, "key")
        if self.queue is not None:
            check_name(self.queue, "queue")

    def limits(self, defaults: ev.InvokeLimits) -> Any:
        """The deadlines of the call; UNSET where there are none."""
        if self.timeout is None:
            return defaults if defaults != ev.InvokeLimits() else UNSET
        return ev.InvokeLimits(
            timeout=self.timeout,
            schedule_to_start=defaults.schedule_to_start,
            schedule_to_close=defaults.schedule_to_close,
            heartbeat=defaults.heartbeat,
            on_exhausted=defaults.on_exhausted,
        )


class StepDecoder:
    """Decodes the result of a registered task or workflow."""

    __slots__ = ("_hints", "_name", "_raises", "_where")

    def __init__(self, name: str, hints: Hints, raises: tuple[type[Exception], ...]) -> None:
        self._name = name
        self._hints = hints
        self._raises = raises
        self._where = f"result of {name}"

    def value(self, data: Any) -> Any:
        """The result as the type that the function's signature says."""
        hint = self._hints.returns
        if type(data) is hint and hint in IMMUTABLE:
            return data
        return decode(data, hint, where=self._where)

    def error(self, error: ev.Error) -> BaseException:
        """What the caller gets for a failure."""
        return exception_for(self._name, error, self._raises)


Definition = TaskDefinition | WorkflowDefinition
_DEFINITIONS = (TaskDefinition, WorkflowDefinition)


def attach(fn: Callable[..., Any], definition: Definition) -> None:
    """Let *fn* be passed to ``ctx.invoke`` and ``client.start`` as it is."""
    known = definition_of(fn)
    if known is not None and known != definition:
        message = (
            f"{_named(fn)} is registered as {known.name!r} already: app.include() takes it into another app"
        )
        raise InvalidRequest(message)
    try:
        setattr(fn, _ATTRIBUTE, definition)
    except AttributeError:
        message = f"{_named(fn)} cannot be registered: wrap it in a function of your own"
        raise InvalidRequest(message) from None


def definition_of(fn: object) -> Definition | None:
    """Return what *fn* was registered as, if it was."""
    found = getattr(fn, _ATTRIBUTE, None)
    return found if isinstance(found, _DEFINITIONS) else None


def workflow_definition(fn: object) -> WorkflowDefinition:
    """Return the workflow that *fn* was registered as, refusing anything else."""
    found = definition_of(fn)
    if not isinstance(found, WorkflowDefinition):
        message = f"{_named(fn)} is not a workflow: decorate it with @app.workflow"
        raise InvalidRequest(message)
    return found


def task_hints(fn: Callable[..., Any]) -> Hints:
    """Check that *fn* can be a task and read its signature."""
    if not inspect.isroutine(fn):
        message = f"@app.task needs a function, not {fn!r}"
        raise InvalidRequest(message)
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        message = f"{_named(fn)} is a generator: a task returns one result"
        raise InvalidRequest(message)
    return signature_hints(fn, skip=0)


def refuse_process(fn: Callable[..., Any], *, transactional: bool) -> None:
    """Refuse a task that cannot be executed in another process."""
    if inspect.iscoroutinefunction(fn):
        message = f"{_named(fn)} is async, and process=True executes plain functions: leave one of them out"
        raise InvalidRequest(message)
    if transactional:
        message = (
            f"{_named(fn)}: its database connection belongs to the worker's process, so a transactional "
            "task cannot have process=True; compute in one task and write in another"
        )
        raise InvalidRequest(message)
    if "<" in fn.__qualname__ or not fn.__module__:  # <lambda>, or f.<locals>.g
        message = (
            f"{fn.__qualname__} cannot be imported by another process, which process=True asks for: "
            "define it at the top of a module"
        )
        raise InvalidRequest(message)


def workflow_hints(fn: Callable[..., Any]) -> Hints:
    """Check that *fn* can be a workflow and read its signature."""
    if not inspect.iscoroutinefunction(fn):
        message = f"{_named(fn)} must be an `async def` that takes a Context first"
        raise InvalidRequest(message)
    parameters = list(inspect.signature(fn).parameters.values())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not parameters or parameters[0].kind not in positional:
        message = f"{_named(fn)} takes no Context: write `async def {_named(fn)}(ctx: Context, ...)`"
        raise InvalidRequest(message)
    return signature_hints(fn, skip=1)


def _named(fn: object) -> str:
    return getattr(fn, "__name__", repr(fn))
