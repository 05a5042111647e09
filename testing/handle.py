"""The client of the environment and its handles: the verbs of the real ones, in memory."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from tidewheel.journal import events as ev
from tidewheel.journal.ids import PromiseId, check_name, check_run_id
from tidewheel.journal.public import PublicEvent, published
from tidewheel.journal.remembering import remembered
from tidewheel.journal.snapshot import RunSnapshot, snapshot_of
from tidewheel.sdk import payload as payloads
from tidewheel.sdk.durations import Duration, seconds
from tidewheel.sdk.errors import (
    AlreadyResolved,
    DeterminismViolation,
    NotFound,
    RunCancelled,
    RunFailed,
    SignalRejected,
)
from tidewheel.testing.memory_run import MemoryRun

if TYPE_CHECKING:
    from tidewheel.testing.environment import Environment


R = TypeVar("R")


class MemoryClient:
    """Starts runs in an environment and finds them again."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._by_key: dict[str, str] = {}

    @overload
    async def start(
        self,
        workflow: Callable[..., Awaitable[R]],
        *args: Any,
        run_id: str | None = ...,
        idempotency_key: str | None = ...,
        queue: str | None = ...,
    ) -> Handle[R]: ...
    @overload
    async def start(
        self,
        workflow: str,
        *args: Any,
        run_id: str | None = ...,
        idempotency_key: str | None = ...,
        queue: str | None = ...,
    ) -> Handle[Any]: ...
    async def start(
        self,
        workflow: str | Callable[..., Any],
        *args: Any,
        run_id: str | None = None,
        idempotency_key: str | None = None,
        queue: str | None = None,
    ) -> Handle[Any]:
        """Start a run, or return the one that has this id or key already."""
        self._environment.check_open()
        engine = self._environment.engine
        definition = engine.app.workflow_named(workflow)
        given = payloads.encode_args(definition.hints, args)
        if queue is not None:
            check_name(queue, "queue")
        known = self._by_key.get(idempotency_key) if idempotency_key is not None else None
        chosen = known or (self._free_id(definition.name) if run_id is None else run_id)
        if known is None:
            check_run_id(chosen)
        existing = engine.runs.get(chosen)
        if existing is not None:
            differs = existing.started.input != given or existing.definition is not definition
            return Handle(self._environment, existing, mismatch=differs)
        if idempotency_key is not None:
            self._by_key[idempotency_key] = chosen
        run = engine.start(definition, PromiseId(chosen), given, idempotency_key=idempotency_key)
        return Handle(self._environment, run)

    def _free_id(self, workflow: str) -> str:
        runs = self._environment.engine.runs
        numbered = (f"{workflow}-{number}" for number in itertools.count(len(runs) + 1))
        return next(run_id for run_id in numbered if run_id not in runs)

    def handle(self, run_id: str) -> Handle[Any]:
        """Find a run, or a child run such as ``order-42:1``."""
        run = self._environment.engine.runs.get(run_id)
        if run is None:
            message = f"there is no run {run_id!r} in this environment"
            raise NotFound(message)
        return Handle(self._environment, run)


class Handle(Generic[R]):
    """One run, seen from outside."""

    def __init__(self, environment: Environment, run: MemoryRun, *, mismatch: bool = False) -> None:
        self._environment = environment
        self._run = run
        #: The run existed already and was started with another input.
        self.mismatch = mismatch

    def __repr__(self) -> str:
        return f"<Handle {self.run_id} {self._run.state.public_status}>"

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._run.run_id

    async def result(self, timeout: Duration | None = None) -> R:
        """Let time pass until the run ends, at most *timeout* on the virtual clock; return its result."""
        limit = None if timeout is None else seconds(timeout, "result(timeout=)")
        await self._environment.run_until(self._is_over, self._run, limit)
        if self._run.parked is not None:
            raise DeterminismViolation(self._run.parked)
        match self._run.terminal:
            case ev.ExecutionCompleted(result=result):
                hint = self._run.definition.hints.returns
                return cast("R", payloads.decode(result.ok, hint, where=f"result of {self.run_id}"))
            case ev.ExecutionFailed(error=error):
                raise RunFailed(self.run_id, error)
            case ev.ExecutionCancelled(reason=reason):
                raise RunCancelled(self.run_id, reason)
            case other:
                raise AssertionError(other)

    async def status(self) -> str:
        """The run's status in the contract's words: RUNNING, COMPLETED and so on."""
        return self._run.state.public_status

    async def describe(self) -> RunSnapshot:
        """The run and its steps as one value, folded from the journal."""
        return snapshot_of(self._run.entries, self.run_id)

    async def journal(self) -> list[ev.Entry]:
        """The run's journal so far."""
        return list(self._run.entries)

    async def events(self) -> list[PublicEvent]:
        """The public events of the run so far."""
        return published(self._run.entries, self.run_id)

    async def state(self) -> dict[str, Any]:
        """What the run remembers in ``ctx.state``, as JSON."""
        return remembered(self._run.segment())

    async def signal(self, name: str, payload: Any = None) -> None:
        """Send a signal; it is buffered until the code asks for it."""
        check_name(name, "signal")
        self._refuse_if_over(f"signal {name!r}")
        data = payloads.encode(payload, where="payload")
        delivery = self._run.delivered[name] + 1
        event = ev.SignalDelivered(signal_name=name, payload=data, delivery_id=delivery)
        self._environment.engine.fact(self._run, event)

    async def cancel(self, reason: str | None = None) -> None:
        """Ask the run to stop; asking again, or after its end, changes nothing."""
        if self._run.terminal is None and not self._run.state.cancelling:
            self._environment.engine.fact(self._run, ev.CancelRequested(reason=reason))

    async def resolve(self, promise: str, value: Any = None) -> None:
        """Resolve the promise of this name with *value*."""
        await self._settle(promise, ev.Result(ok=payloads.encode(value, where="value")))

    async def reject(self, promise: str, message: str) -> None:
        """Reject the promise of this name: the code gets ``StepFailed``."""
        await self._settle(promise, ev.Result(error=ev.Error(type="Rejected", message=message)))

    async def _settle(self, name: str, result: ev.Result) -> None:
        await self._environment.settle()
        self._refuse_if_over(f"promise {name!r}")
        created = self._run.promises.get(name)
        if created is None:
            known = ", ".join(sorted(self._run.promises)) or "none"
            message = f"run {self.run_id} has no promise {name!r}; it has: {known}"
            raise NotFound(message)
        if created.promise_id in self._run.resolved:
            message = f"promise {name!r} of run {self.run_id} was resolved before"
            raise AlreadyResolved(message)
        self._environment.engine.fact(
            self._run, ev.PromiseResolved(promise_id=created.promise_id, result=result)
        )

    def _is_over(self) -> bool:
        return self._run.terminal is not None or self._run.parked is not None

    def _refuse_if_over(self, what: str) -> None:
        if self._run.terminal is not None:
            ended = self._run.state.public_status
            message = f"run {self.run_id} cannot take {what}: it has ended ({ended})"
            raise SignalRejected(message)
