"""``Environment``: an app's workflows in memory, on a clock that skips the waiting."""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable
from typing import Any, Self

from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.journal.errors import InvalidRequest, TidewheelError
from tidewheel.journal.verify import verify
from tidewheel.sdk.app import App
from tidewheel.sdk.definitions import TaskDefinition, definition_of
from tidewheel.sdk.durations import Duration, seconds
from tidewheel.testing.engine import Engine
from tidewheel.testing.handle import MemoryClient
from tidewheel.testing.memory_run import MemoryRun
from tidewheel.testing.steps import Fake

#: Where the virtual clock begins unless a test says otherwise.
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
#: Things that may happen while one result is awaited; beyond it a run is not going to end.
STEPS_MAX = 1_000_000


class Stuck(TidewheelError):
    """A run waits for something that nothing in the test will bring."""


class Environment:
    """Runs workflows in memory: real or fake tasks, a virtual clock, crashes on demand.

    Use it as an async context manager: runs live inside its block. Time passes only while
    something is awaited (``handle.result()``, ``env.sleep()``), and then as fast as things can
    happen. The same test gives the same journal; *seed* varies ``ctx.random()``, ``ctx.uuid()``
    and jitter.
    """

    def __init__(self, app: App, *, start: dt.datetime = START, seed: int = 0) -> None:
        self.engine = Engine(app, start=start, seed=seed)
        self.client = MemoryClient(self)
        self._is_open = False
        self._failed_plans: list[Exception] = []

    async def __aenter__(self) -> Self:
        """Begin."""
        self._is_open = True
        return self

    async def __aexit__(self, _kind: object, problem: BaseException | None, _traceback: object) -> None:
        """Stop everything, check that every journal kept the rules, and tell which plans failed."""
        self._is_open = False
        await self.engine.close()
        failed, self._failed_plans = self._failed_plans, []
        if problem is not None:
            for one in failed:
                problem.add_note(f"{type(one).__name__}: {one}, {', '.join(one.__notes__)}")
            return
        for run in self.engine.runs.values():
            breaches = verify(run.entries)
            assert not breaches, f"{run.run_id} breaks {breaches}"
        if len(failed) > 1:
            message = f"{len(failed)} planned actions failed"
            raise ExceptionGroup(message, failed)
        if failed:
            raise failed[0]

    def check_open(self) -> None:
        """Refuse what only makes sense inside the block."""
        if not self._is_open:
            message = "runs live inside the block: write `async with Environment(app) as env:`"
            raise InvalidRequest(message)

    @property
    def now(self) -> dt.datetime:
        """The virtual time."""
        return self.engine.agenda.now

    # Tasks

    def fake(
        self,
        task: Callable[..., Any],
        fn: Callable[..., Any] | None = None,
        *,
        returns: Any = UNSET,
        raises: BaseException | None = None,
        takes: Duration = 0.0,
    ) -> None:
        """Replace *task* by a function, a result or an error, and say how long it takes.

        With *takes* alone the real function is called and its result arrives that much later
        on the virtual clock.
        """
        definition = definition_of(task)
        if not isinstance(definition, TaskDefinition):
            message = f"{getattr(task, '__name__', task)!r} is not a task: only tasks can be faked"
            raise InvalidRequest(message)
        if sum((fn is not None, returns is not UNSET, raises is not None)) > 1:
            message = f"fake({definition.name}): give a function, returns= or raises=, not several"
            raise InvalidRequest(message)
        if returns is not UNSET:
            fn = lambda *_args: returns  # noqa: E731 - a constant function
        elif raises is not None:
            fn = _raiser(raises)
        self.engine.fakes[definition.name] = Fake(fn, seconds(takes, "takes"))

    # Time

    def after(self, delay: Duration, action: Callable[..., Any], *args: Any) -> None:
        """Call *action* with *args* that much later: ``env.after(30, handle.signal, "ok")``.

        An action that fails disturbs nothing that happens to be awaited then: its error is
        raised when the ``async with`` block ends, with a note that says which plan it was.
        Several come as an ``ExceptionGroup``. Where the block fails anyway, they are notes on
        its error.
        """
        due_in = seconds(delay, "delay")
        due_at = self.now + dt.timedelta(seconds=due_in)

        async def carry_out() -> None:
            try:
                outcome = action(*args)
                if inspect.isawaitable(outcome):
                    await outcome
            except Exception as problem:  # noqa: BLE001 - kept until the block ends
                given = ", ".join([f"{due_in:g}", _name(action), *(repr(one) for one in args)])
                problem.add_note(f"planned with env.after({given}), due at {due_at.isoformat()}")
                self._failed_plans.append(problem)

        self.engine.agenda.at(due_at, carry_out, volatile=False)

    async def settle(self) -> None:
        """Let everything happen that needs no time to pass."""
        await self._run(lambda: False, until=self.now)

    async def sleep(self, duration: Duration) -> None:
        """Let virtual time pass."""
        until = self.now + dt.timedelta(seconds=seconds(duration, "duration"))
        await self._run(lambda: False, until=until)
        self.engine.agenda.now = max(self.now, until)

    async def run_until(self, done: Callable[[], bool], run: MemoryRun, timeout: float | None = None) -> None:
        """Let things happen until *done*; ``Stuck`` if nothing is left that could."""
        until = None if timeout is None else self.now + dt.timedelta(seconds=timeout)
        if await self._run(done, until=until):
            return
        if until is not None:
            self.engine.agenda.now = max(self.now, until)
            message = f"run {run.run_id} did not end within {timeout:g} virtual seconds"
            raise TimeoutError(message)
        raise Stuck(_why_stuck(run))

    async def _run(self, done: Callable[[], bool], *, until: dt.datetime | None) -> bool:
        for _ in range(STEPS_MAX):
            if done():
                return True
            self.check_open()
            if not await self.engine.step(until):
                return done()
        message = f"still busy after {STEPS_MAX:,} steps: does a workflow poll without end?"
        raise Stuck(message)

    # Faults

    def crash(self) -> None:
        """Lose all memory now, as a killed process would, and go on from the journals."""
        self.engine.crash()

    def crash_after(self, events: int) -> None:
        """Crash once that many events have been written, counted over all runs.

        Events that are appended together are committed together: the crash comes after the
        last of them.
        """
        self.engine.crash_after(events)

    def crash_after_attempt(self, attempts: int) -> None:
        """Crash once that many attempts of steps have been executed, before the last result is kept.

        That step is executed again: a body that cannot bear it shows here.
        """
        self.engine.crash_after_attempt(attempts)

    def on_event(self, listener: Callable[[str, ev.Entry], None]) -> None:
        """Call *listener* with the run's id and each entry as it is written."""
        self.engine.on_event = lambda run, entry: listener(run.run_id, entry)


def _name(action: Callable[..., Any]) -> str:
    return getattr(action, "__qualname__", None) or repr(action)


def _raiser(problem: BaseException) -> Callable[..., Any]:
    def fail(*_args: Any) -> Any:
        raise problem

    return fail


def _why_stuck(run: MemoryRun) -> str:
    waiting = run.state.waiting
    parked = [step.event.function_name for step in run.steps.values() if step.is_parked]
    if parked:
        why = f"step {parked[0]!r} is parked: its attempts are spent"
    elif waiting is None:
        why = "nothing woke it"
    elif waiting.signals and {wait.promise_id for wait in waiting.signals} >= set(waiting.waiting_on):
        names = ", ".join(repr(wait.signal_name) for wait in waiting.signals)
        why = f"it waits for signal {names}: send it, or plan it with env.after(...)"
    else:
        promises = [
            created.name for created in run.promises.values() if created.promise_id in waiting.waiting_on
        ]
        awaited = f"promise {promises[0]!r}" if promises else ", ".join(waiting.waiting_on)
        why = f"it waits for {awaited} and nothing is due"
    return f"run {run.run_id} cannot go on: {why}"
