"""Runs in memory: one thing happens at a time, on a virtual clock.

The order of business: runs that may move are activated; attempts that are being executed
are waited for; then the clock moves to the next thing that is due. Whatever is appended is
"committed": a crash loses executions, attempts in flight and their timers, never a journal,
and everything is derived from the journals again.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import inspect
import random
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.journal.ids import PromiseId
from tidewheel.journal.retry import ONCE, retry_delay
from tidewheel.sdk.app import App
from tidewheel.sdk.current_task import CurrentTask
from tidewheel.sdk.definitions import WorkflowDefinition
from tidewheel.testing.agenda import Agenda
from tidewheel.testing.memory_run import MemoryRun, OpenStep
from tidewheel.testing.steps import Attempt, Fake, bound_call, execute, limit_of


class SeededEntropy:
    """Chance from a seed, so that a test gives the same run every time."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a test must be repeatable

    def random(self) -> float:
        """A float in [0, 1)."""
        return self._random.random()

    def uuid(self) -> str:
        """A version 4 UUID."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


class Engine:
    """Everything the environment does, without the conveniences."""

    def __init__(self, app: App, *, start: dt.datetime, seed: int) -> None:
        self.app = app
        self.agenda = Agenda(start)
        self.runs: dict[str, MemoryRun] = {}
        self.fakes: dict[str, Fake] = {}
        self.events_written = 0
        #: Called after each event that is written.
        self.on_event: Callable[[MemoryRun, ev.Entry], None] | None = None
        self._entropy = SeededEntropy(seed)
        self._woken: deque[MemoryRun] = deque()
        self._in_flight: dict[asyncio.Task[ev.Result], tuple[MemoryRun, Attempt, dt.datetime]] = {}
        self._heartbeats: dict[str, Any] = {}
        #: How many attempts have been executed, whether or not their results were kept.
        self.attempts_executed = 0
        self._crash_after: int | None = None
        self._crash_after_attempt: int | None = None

    # What can be asked of it

    def start(
        self,
        definition: WorkflowDefinition,
        run: PromiseId,
        given: list[Any],
        *,
        parent: str | None = None,
        idempotency_key: str | None = None,
    ) -> MemoryRun:
        """Begin a run."""
        created = MemoryRun(run, definition, self._entropy)
        self.runs[created.run_id] = created
        self._write(
            created,
            [
                ev.ExecutionStarted(
                    component_digest=definition.digest,
                    input=given,
                    parent_id=parent,
                    idempotency_key=idempotency_key,
                    workflow=definition.name,
                    version=definition.version,
                    now=self.agenda.now,
                )
            ],
        )
        self._woken.append(created)
        return created

    def fact(self, run: MemoryRun, *events: ev.Event) -> None:
        """Journal something that happened, and wake the run."""
        for entry in self._write(run, list(events)):
            run.tell(entry)
        self._woken.append(run)

    async def step(self, until: dt.datetime | None = None) -> bool:
        """Let the next thing happen; False if nothing can, or not before *until*."""
        if self._crash_after is not None and self.events_written >= self._crash_after:
            self._crash_after = None
            self.crash()
        if self._woken:
            self._activate(self._woken.popleft())
            return True
        if self._in_flight:
            await self._await_attempts()
            return True
        due = self.agenda.next_at()
        if due is None or (until is not None and due > until):
            return False
        outcome = self.agenda.pop()()
        if inspect.isawaitable(outcome):
            await outcome
        return True

    def crash_after(self, events: int) -> None:
        """Crash once *events* events have been written, all runs counted together."""
        self._crash_after = events

    def crash_after_attempt(self, attempts: int) -> None:
        """Crash once that many attempts were executed, before the last one's result is kept."""
        self._crash_after_attempt = attempts

    def crash(self) -> None:
        """Lose everything but the journals, and begin again from them."""
        for body in self._in_flight:
            body.cancel()
        self._in_flight.clear()
        self._woken.clear()
        self.agenda.crash()
        for run in self.runs.values():
            run.evict()
            if run.terminal is None:
                self._woken.append(run)
                for timer in run.timers.values():
                    self._arm(run, timer)

    async def close(self) -> None:
        """Stop what is being executed and give up all memory."""
        bodies = list(self._in_flight)
        for body in bodies:
            body.cancel()
        await asyncio.gather(*bodies, return_exceptions=True)
        for run in self.runs.values():
            run.evict()

    # Activation

    def _activate(self, run: MemoryRun) -> None:
        if run.terminal is not None or run.parked is not None:
            return
        lost = list(run.steps.values()) if run.is_evicted() else []
        execution = run.execution()
        activation = execution.activate(self.agenda.now)
        if activation is not None and activation.violation and run.definition.on_violation == "park":
            run.parked = activation.violation
            return
        written = self._write(run, activation.events if activation is not None else [])
        if run.has_ended():
            self._ended(run)
            return
        for entry in written:
            self._carry_out(run, entry.event)
        if not run.is_evicted():
            self._redispatch(run, lost)
        self._pass_on_abandoned(run)
        if not run.is_evicted() and activation is not None and run.execution().runnable():
            self._woken.append(run)

    def _carry_out(self, run: MemoryRun, event: ev.Event) -> None:
        match event:
            case ev.InvokeScheduled():
                self._dispatch(run, run.steps[event.promise_id])
            case ev.TimerScheduled():
                self._arm(run, event)
            case ev.ExecutionContinued():
                self._cancel_children(run)
                self._woken.append(run)
            case _:
                pass

    def _redispatch(self, run: MemoryRun, lost: list[OpenStep]) -> None:
        abandoned = run.execution().abandoned
        for step in lost:
            if step.event.promise_id in abandoned:
                continue
            if step.event.kind == "workflow":
                if str(PromiseId(run.id.run, step.event.promise_id)) not in self.runs:
                    self._dispatch(run, step)
            elif step.failed is None:
                self._dispatch(run, step)
            elif step.failed.retry_at is not None:
                self._retry_at(run, step, step.failed.retry_at)

    def _pass_on_abandoned(self, run: MemoryRun) -> None:
        if run.is_evicted():
            return
        for path, event in list(run.execution().abandoned.items()):
            step = run.steps.get(path)
            if step is None or step.dropped:
                continue
            step.dropped = True
            if event.kind == "workflow":
                self._cancel_run(self.runs.get(str(PromiseId(run.id.run, path))), "its parent gave up on it")
            self._drop_attempts(run, path)

    # Steps

    def _dispatch(self, run: MemoryRun, step: OpenStep) -> None:
        event = step.event
        if event.kind == "workflow":
            definition = self.app.workflow_named(event.function_name)
            child = PromiseId(run.id.run, event.promise_id)
            self.start(definition, child, event.input, parent=run.run_id)
            self.fact(run, ev.InvokeStarted(promise_id=event.promise_id, attempt=1))
            return
        call, takes = self._call_for(run, event)
        if call is None:
            return
        elapsed = (self.agenda.now - step.scheduled_at).total_seconds()
        attempt = Attempt(event=event, number=step.next_attempt, takes=takes, limit=limit_of(event, elapsed))
        body = asyncio.ensure_future(execute(attempt, call, self._current_task(run, attempt)))
        self._in_flight[body] = (run, attempt, self.agenda.now)

    def _call_for(self, run: MemoryRun, event: ev.InvokeScheduled) -> tuple[Callable[[], Any] | None, float]:
        if event.kind == "operation":
            promise = run.execution().pending.get(event.promise_id)
            return getattr(promise, "execute", None), 0.0
        fake = self.fakes.get(event.function_name)
        definition = self.app.task_named(event.function_name)
        return bound_call(definition, fake, event.input), fake.takes if fake is not None else 0.0

    def _current_task(self, run: MemoryRun, attempt: Attempt) -> CurrentTask:
        key = str(PromiseId(run.id.run, attempt.event.promise_id))
        return CurrentTask(
            run_id=run.run_id,
            attempt=attempt.number,
            idempotency_key=key,
            last_heartbeat=self._heartbeats.get(key),
            _beat=lambda details: self._heartbeats.__setitem__(key, details),
        )

    async def _await_attempts(self) -> None:
        done, _ = await asyncio.wait(self._in_flight, return_when=asyncio.FIRST_COMPLETED)
        finished = [body for body in self._in_flight if body in done]
        for body in finished:
            self.attempts_executed += 1
            if self.attempts_executed == self._crash_after_attempt:
                self.crash()
                return
            run, attempt, begun = self._in_flight.pop(body)
            if not body.cancelled():
                ended = begun + dt.timedelta(seconds=attempt.lasts)
                action = functools.partial(self._attempt_ended, run, attempt, body.result())
                self.agenda.at(ended, action, volatile=True)

    def _attempt_ended(self, run: MemoryRun, attempt: Attempt, result: ev.Result) -> None:
        path = attempt.event.promise_id
        step = run.steps.get(path)
        if run.terminal is not None or step is None or step.event is not attempt.event:
            return  # a late result: the run, or its segment, has moved on
        started = ev.InvokeStarted(promise_id=path, attempt=attempt.number)
        error = result.error
        if error is UNSET:
            self.fact(
                run, started, ev.InvokeCompleted(promise_id=path, result=result, attempt=attempt.number)
            )
            return
        delay = retry_delay(
            attempt.event.retry_policy or ONCE,
            attempt=attempt.number,
            error_type=error.type,
            retryable=error.retryable,
            elapsed=(self.agenda.now - step.scheduled_at).total_seconds(),
            jitter=self._entropy.random(),
        )
        limits = attempt.event.limits
        parks = limits is not UNSET and limits.on_exhausted == "park"
        if delay is None and not parks:
            spent = ev.Error(
                type=error.type,
                message=error.message,
                retryable=error.retryable,
                attempts=attempt.number,
                details=error.details,
            )
            final = ev.InvokeCompleted(promise_id=path, result=ev.Result(error=spent), attempt=attempt.number)
            self.fact(run, started, final)
            return
        retry_at = None if delay is None else self.agenda.now + dt.timedelta(seconds=delay)
        self.fact(
            run,
            started,
            ev.InvokeRetrying(promise_id=path, failed_attempt=attempt.number, error=error, retry_at=retry_at),
        )
        if retry_at is not None:
            self._retry_at(run, step, retry_at)

    def _retry_at(self, run: MemoryRun, step: OpenStep, when: dt.datetime) -> None:
        def retry() -> None:
            if run.terminal is None and run.steps.get(step.event.promise_id) is step and not step.dropped:
                self._dispatch(run, step)

        self.agenda.at(when, retry, volatile=True)

    def _drop_attempts(self, run: MemoryRun, path: str | None = None) -> None:
        for body, (owner, attempt, _begun) in list(self._in_flight.items()):
            if owner is run and path in (None, attempt.event.promise_id):
                body.cancel()
                del self._in_flight[body]

    # Timers, children, the end

    def _arm(self, run: MemoryRun, timer: ev.TimerScheduled) -> None:
        def fire() -> None:
            if run.terminal is None and run.timers.get(timer.promise_id) is timer:
                self.fact(run, ev.TimerFired(promise_id=timer.promise_id))

        assert timer.fire_at is not None
        self.agenda.at(timer.fire_at, fire, volatile=True)

    def _ended(self, run: MemoryRun) -> None:
        run.evict()
        self._drop_attempts(run)
        self._cancel_children(run)
        parent_id = run.id.parent()
        parent = self.runs.get(str(parent_id)) if parent_id is not None else None
        if parent is not None and parent.terminal is None and run.id.path in parent.steps:
            self.fact(parent, ev.InvokeCompleted(promise_id=run.id.path, result=_outcome(run), attempt=1))

    def _cancel_children(self, run: MemoryRun) -> None:
        for child in list(self.runs.values()):
            if child.id.parent() == run.id and child.id != run.id:
                self._cancel_run(child, "its parent has ended")

    def _cancel_run(self, run: MemoryRun | None, reason: str) -> None:
        if run is not None and run.terminal is None and not run.state.cancelling:
            self.fact(run, ev.CancelRequested(reason=reason))

    def _write(self, run: MemoryRun, events: list[ev.Event]) -> list[ev.Entry]:
        written = [run.append(event, self.agenda.now) for event in events]
        self.events_written += len(written)
        if self.on_event is not None:
            for entry in written:
                self.on_event(run, entry)
        return written


def _outcome(run: MemoryRun) -> ev.Result:
    match run.terminal:
        case ev.ExecutionCompleted(result=result):
            return result
        case ev.ExecutionFailed(error=error):
            return ev.Result(error=error)
        case ev.ExecutionCancelled(reason=reason):
            message = f"child run {run.run_id} was cancelled" + (f": {reason}" if reason else "")
            return ev.Result(error=ev.Error(type="RunCancelled", message=message))
        case _:
            raise AssertionError(run.terminal)
