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

from tidewheel.journal import events as ev
from tidewheel.journal.ids import PromiseId, path_order
from tidewheel.replay.execution import Execution
from tidewheel.sdk.app import App
from tidewheel.sdk.current_task import CurrentTask
from tidewheel.sdk.definitions import WorkflowDefinition
from tidewheel.sdk.errors import NotFound
from tidewheel.store.append import Completed
from tidewheel.store.ledger import outcome_of
from tidewheel.testing.agenda import Agenda
from tidewheel.testing.memory_run import MemoryRun, OpenStep
from tidewheel.testing.steps import Attempt, Fake, bound_call, execute
from tidewheel.workers.outcomes import attempt_ended, limit_of


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
        self._in_flight: dict[asyncio.Task[ev.Result], tuple[MemoryRun, OpenStep, Attempt, dt.datetime]] = {}
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
        parent: MemoryRun | None = None,
        idempotency_key: str | None = None,
    ) -> MemoryRun:
        """Begin a run."""
        created = MemoryRun(run, definition, self._entropy, parent=parent)
        self.runs[created.run_id] = created
        if parent is not None:
            parent.children[run.path] = created
        self._write(
            created,
            [
                ev.ExecutionStarted(
                    component_digest=definition.digest,
                    input=given,
                    parent_id=None if parent is None else parent.run_id,
                    idempotency_key=idempotency_key,
                    workflow=definition.name,
                    version=definition.version,
                    now=self.agenda.now,
                    run_id=created.run_id,
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
            run.dropped.clear()
            for step in run.steps.values():
                step.doing = None
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
        if run.state.ended or run.parked is not None:
            return
        open_ = run.steps
        lost = list(open_.values()) if run.is_evicted() else []
        execution = run.execution()
        activation = execution.activate(self.agenda.now)
        if activation is not None and activation.violation and run.definition.on_violation == "park":
            run.parked = activation.violation
            return
        events = activation.events if activation is not None else []
        self._write(run, events)
        if run.terminal is not None:
            self._stop(run, open_)
            self._ended(run)
        elif any(isinstance(event, ev.ExecutionContinued) for event in events):
            self._stop(run, open_)
            self._woken.append(run)
        else:
            self._carry_out(run, execution, events, lost)
            if activation is not None and not execution.evicted and execution.runnable():
                self._woken.append(run)

    def _carry_out(
        self, run: MemoryRun, execution: Execution, events: list[ev.Event], lost: list[OpenStep]
    ) -> None:
        """Do what the code asked for just now, and again what was *lost* in a crash."""
        asked = [run.steps[event.promise_id] for event in events if isinstance(event, ev.InvokeScheduled)]
        for step in (*asked, *lost):
            # A listener may crash everything at any event; then the next activation does the rest.
            if not execution.evicted and step.event.promise_id not in execution.abandoned:
                self._take_up(run, step)
        if execution.evicted:
            return
        for event in events:
            if isinstance(event, ev.TimerScheduled) and event.promise_id in run.timers:
                self._arm(run, event)
        self._heed_abandonment(run, execution)

    def _heed_abandonment(self, run: MemoryRun, execution: Execution) -> None:
        """Stop what the code gave up on, and take up again what it came back to."""
        wanted = run.dropped - execution.abandoned.keys()
        unwanted = execution.abandoned.keys() - run.dropped
        for path in sorted(wanted, key=path_order):
            if not execution.evicted:
                run.dropped.discard(path)
                self._take_up(run, run.steps[path])
        for path in sorted(unwanted, key=path_order):
            step = run.steps.get(path)
            if step is not None and not execution.evicted:
                run.dropped.add(path)
                self._drop_attempt(step)
                self._cancel_run(run.children.get(path), "its parent gave up on it")

    def _stop(self, run: MemoryRun, open_: dict[str, OpenStep]) -> None:
        """Leave what a run, or a segment of it, had *open_* when it ended."""
        run.evict()
        for step in open_.values():
            self._drop_attempt(step)
        for child in list(run.children.values()):
            self._cancel_run(child, "its parent has ended")

    # Steps

    def _take_up(self, run: MemoryRun, step: OpenStep) -> None:
        """Go on with *step* where its journal says it stands."""
        if step.failed is None:
            self._dispatch(run, step)
        elif step.failed.retry_at is not None:
            self._retry_at(run, step, step.failed.retry_at)

    def _dispatch(self, run: MemoryRun, step: OpenStep) -> None:
        match step.event.kind:
            case "workflow":
                self._start_child(run, step)
            case "operation":
                promise = run.execution().pending.get(step.event.promise_id)
                self._start_attempt(run, step, getattr(promise, "execute", None))
            case _:
                self._start_task(run, step)

    def _start_child(self, run: MemoryRun, step: OpenStep) -> None:
        event = step.event
        child = PromiseId(run.id.run, event.promise_id)
        definition = self.app.workflows.get(event.function_name)
        if definition is None:
            self._not_included(run, step)
        elif str(child) not in self.runs:
            self.start(definition, child, event.input, parent=run)
            self.fact(run, ev.InvokeStarted(promise_id=event.promise_id, attempt=1))

    def _start_task(self, run: MemoryRun, step: OpenStep) -> None:
        event = step.event
        definition = self.app.tasks.get(event.function_name)
        if definition is None:
            self._not_included(run, step)
            return
        fake = self.fakes.get(event.function_name, Fake())
        self._start_attempt(run, step, bound_call(definition, fake, event.input), takes=fake.takes)

    def _start_attempt(
        self, run: MemoryRun, step: OpenStep, call: Callable[[], Any] | None, *, takes: float = 0.0
    ) -> None:
        if call is None:
            run.dropped.add(step.event.promise_id)  # until the code asks for it
            return
        elapsed = (self.agenda.now - step.scheduled_at).total_seconds()
        limit = limit_of(step.event, elapsed)
        attempt = Attempt(event=step.event, number=step.next_attempt, takes=takes, limit=limit)
        step.doing = asyncio.ensure_future(execute(attempt, call, self._current_task(run, attempt)))
        self._in_flight[step.doing] = (run, step, attempt, self.agenda.now)

    def _not_included(self, run: MemoryRun, step: OpenStep) -> None:
        """Fail a step that nobody here could execute."""
        event, attempt = step.event, step.next_attempt
        what = "workflow" if event.kind == "workflow" else "task"
        message = (
            f"app {self.app.name!r} has no {what} {event.function_name!r}: "
            "include the app that defines it, with app.include(...)"
        )
        error = ev.Error(type=NotFound.__name__, message=message, retryable=False, attempts=attempt)
        self.fact(
            run,
            ev.InvokeStarted(promise_id=event.promise_id, attempt=attempt),
            ev.InvokeCompleted(promise_id=event.promise_id, result=ev.Result(error=error), attempt=attempt),
        )

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
            run, step, attempt, begun = self._in_flight.pop(body)
            if not body.cancelled():
                ended = begun + dt.timedelta(seconds=attempt.lasts)
                action = functools.partial(self._attempt_ended, run, step, attempt, body)
                self.agenda.at(ended, action, volatile=True)

    def _attempt_ended(
        self, run: MemoryRun, step: OpenStep, attempt: Attempt, body: asyncio.Task[ev.Result]
    ) -> None:
        if step.doing is not body:
            return  # a late result: the code gave up on the step, or the run has moved on
        fact = attempt_ended(
            attempt.event,
            attempt=attempt.number,
            result=body.result(),
            scheduled_at=step.scheduled_at,
            now=self.agenda.now,
            jitter=self._entropy.random(),
            owner=None,
        )
        path = fact.path
        started = ev.InvokeStarted(promise_id=path, attempt=attempt.number)
        if isinstance(fact, Completed):
            self.fact(
                run, started, ev.InvokeCompleted(promise_id=path, result=fact.result, attempt=fact.attempt)
            )
            return
        self.fact(
            run,
            started,
            ev.InvokeRetrying(
                promise_id=path, failed_attempt=fact.attempt, error=fact.error, retry_at=fact.retry_at
            ),
        )
        if fact.retry_at is not None:
            self._retry_at(run, step, fact.retry_at)

    def _retry_at(self, run: MemoryRun, step: OpenStep, when: dt.datetime) -> None:
        def retry() -> None:
            if step.doing is retry:
                self._dispatch(run, step)

        step.doing = retry
        self.agenda.at(when, retry, volatile=True)

    def _drop_attempt(self, step: OpenStep) -> None:
        doing, step.doing = step.doing, None
        if isinstance(doing, asyncio.Task) and self._in_flight.pop(doing, None) is not None:
            doing.cancel()

    # Timers, children, the end

    def _arm(self, run: MemoryRun, timer: ev.TimerScheduled) -> None:
        def fire() -> None:
            if run.terminal is None and run.timers.get(timer.promise_id) is timer:
                self.fact(run, ev.TimerFired(promise_id=timer.promise_id))

        assert timer.fire_at is not None
        self.agenda.at(timer.fire_at, fire, volatile=True)

    def _ended(self, run: MemoryRun) -> None:
        """Tell the parent how its child ended."""
        parent, path = run.parent, run.id.path
        if parent is None:
            return
        del parent.children[path]
        if parent.terminal is None and path in parent.steps:
            assert run.terminal is not None
            result = outcome_of(run.terminal, run.run_id)
            self.fact(parent, ev.InvokeCompleted(promise_id=path, result=result, attempt=1))

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
