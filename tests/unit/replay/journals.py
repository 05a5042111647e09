"""Journals written by hand, and runs moved by hand: what the tests of replay are made of.

Each function makes one event, or the few that always come together; ``Driver`` shows a
run's code what the test says happened and gives back what the code asked for.
"""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from msgspec import UNSET

from tidewheel import App, DeterminismWarning
from tidewheel.journal import events as ev
from tidewheel.journal.ids import PromiseId
from tidewheel.journal.verify import verify
from tidewheel.replay.execution import Execution
from tidewheel.replay.violation import DETERMINISM_VIOLATION, Violation
from tidewheel.sdk.definitions import WorkflowDefinition, definition_of
from tidewheel.sdk.program import execution_of

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
RUN = PromiseId("run")

F = TypeVar("F", bound=Callable[..., Any])
Events = ev.Event | Iterable[ev.Event]


def unchecked(**options: Any) -> Callable[[F], F]:
    """Register a workflow in an app of its own, without the static check: some break rules on purpose."""

    def decorate(fn: F) -> F:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeterminismWarning)
            return App("test").workflow(**options)(fn)

    return decorate


def definition(workflow: Callable[..., Any]) -> WorkflowDefinition:
    """Return what *workflow* was registered as."""
    found = definition_of(workflow)
    assert isinstance(found, WorkflowDefinition)
    return found


# Events


def begun(*given: Any) -> ev.ExecutionStarted:
    """The run begins with this input."""
    return ev.ExecutionStarted(input=list(given), now=START)


def task(path: str, name: str, *given: Any, key: str | None = None) -> ev.InvokeScheduled:
    """The code asked for a task."""
    return ev.InvokeScheduled(
        promise_id=path, function_name=name, input=list(given), key=UNSET if key is None else key
    )


def child(path: str, name: str, *given: Any) -> ev.InvokeScheduled:
    """The code asked for a child run."""
    return ev.InvokeScheduled(promise_id=path, kind="workflow", function_name=name, input=list(given))


def operation(path: str, name: str, key: str) -> ev.InvokeScheduled:
    """The code asked for a journaled closure."""
    return ev.InvokeScheduled(promise_id=path, kind="operation", function_name=name, key=key)


def done(path: str, value: Any = None) -> list[ev.Event]:
    """A step was executed and gave *value*."""
    return [
        ev.InvokeStarted(promise_id=path, attempt=1),
        ev.InvokeCompleted(promise_id=path, result=ev.Result(ok=value), attempt=1),
    ]


def failed(path: str, message: str = "no luck", kind: str = "Broken") -> list[ev.Event]:
    """A step was executed and failed for good."""
    result = ev.Result(error=ev.Error(type=kind, message=message))
    return [
        ev.InvokeStarted(promise_id=path, attempt=1),
        ev.InvokeCompleted(promise_id=path, result=result, attempt=1),
    ]


def timer(path: str, duration: float) -> ev.TimerScheduled:
    """The code began to wait."""
    fire_at = START + dt.timedelta(seconds=duration)
    return ev.TimerScheduled(promise_id=path, duration=duration, fire_at=fire_at)


def fired(path: str) -> ev.TimerFired:
    """A timer's time has come."""
    return ev.TimerFired(promise_id=path)


def awaiting(*paths: str, kind: ev.AwaitKind | None = None) -> ev.ExecutionAwaiting:
    """The code waits for one of *paths*, or for the only one."""
    return ev.ExecutionAwaiting(waiting_on=list(paths), kind=kind or ("single" if len(paths) == 1 else "any"))


def resumed(*applied: str, seconds: float = 0.0) -> ev.ExecutionResumed:
    """The code was shown *applied*, so many seconds after the start."""
    return ev.ExecutionResumed(applied=list(applied), now=START + dt.timedelta(seconds=seconds))


def step(path: str, name: str, value: Any, *given: Any) -> list[ev.Event]:
    """A whole sequential step: asked for, awaited, executed, shown."""
    return [task(path, name, *given), awaiting(path), *done(path, value), resumed(path)]


def delivered(name: str, payload: Any = None, number: int = 1) -> ev.SignalDelivered:
    """A signal arrived."""
    return ev.SignalDelivered(signal_name=name, payload=payload, delivery_id=number)


def resolved(path: str, value: Any = None) -> ev.PromiseResolved:
    """Somebody resolved a promise."""
    return ev.PromiseResolved(promise_id=path, result=ev.Result(ok=value))


def flat(parts: Iterable[Events]) -> list[ev.Event]:
    """Return all events of *parts* in order."""
    found: list[ev.Event] = []
    for part in parts:
        if isinstance(part, Iterable):
            found += part
        else:
            found.append(part)
    return found


def journal(*parts: Events) -> list[ev.Entry]:
    """Number events from 0, as a store would."""
    return [ev.Entry(seq, START, event) for seq, event in enumerate(flat(parts))]


def names(events: Iterable[ev.Event]) -> list[str]:
    """The types of *events*."""
    return [type(event).__name__ for event in events]


def given_to_steps(events: Iterable[ev.Event]) -> list[list[Any]]:
    """The inputs of the steps that *events* ask for."""
    return [event.input for event in events if isinstance(event, ev.InvokeScheduled)]


def paths_of(kind: type[ev.TimerScheduled | ev.InvokeScheduled], events: Iterable[ev.Event]) -> list[str]:
    """Where the events of *kind* stand."""
    return [event.promise_id for event in events if isinstance(event, kind)]


# Runs


class Counting:
    """Chance that can be foretold: 0.01, 0.02, ..."""

    def __init__(self) -> None:
        self._drawn = 0

    def random(self) -> float:
        """The next number."""
        self._drawn += 1
        return self._drawn / 100

    def uuid(self) -> str:
        """The next number as a UUID."""
        self._drawn += 1
        return f"00000000-0000-4000-8000-{self._drawn:012x}"


class Driver:
    """A run moved by hand; *cold* forgets its memory after every activation."""

    def __init__(
        self,
        workflow: Callable[..., Any],
        *given: Any,
        recorded: Iterable[ev.Entry] | None = None,
        cold: bool = False,
        run: PromiseId = RUN,
    ) -> None:
        self.definition = definition(workflow)
        self.entries = journal(begun(*given)) if recorded is None else list(recorded)
        self.now = max(
            [
                entry.event.now
                for entry in self.entries
                if isinstance(entry.event, _SHOWING) and entry.event.now
            ]
        )
        self.run = run
        self._cold = cold
        self._entropy = Counting()
        self._segment = 0
        self._first_position = 0
        self.execution = self._make()

    @property
    def events(self) -> list[ev.Event]:
        """The journal without its numbers."""
        return [entry.event for entry in self.entries]

    @property
    def last(self) -> ev.Event:
        """The newest event."""
        return self.entries[-1].event

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return isinstance(self.last, ev.TERMINAL)

    @property
    def result(self) -> Any:
        """What the run returned."""
        assert isinstance(self.last, ev.ExecutionCompleted), self.last
        return self.last.result.ok

    @property
    def error(self) -> ev.Error:
        """What the run failed with."""
        assert isinstance(self.last, ev.ExecutionFailed), self.last
        return self.last.error

    @property
    def waits_on(self) -> list[str]:
        """What the run says it waits for."""
        return self.waiting.waiting_on

    @property
    def waiting(self) -> ev.ExecutionAwaiting:
        """The newest suspension."""
        return next(event for event in reversed(self.events) if isinstance(event, ev.ExecutionAwaiting))

    def happens(self, *parts: Events) -> Driver:
        """Journal facts without moving the code."""
        for event in flat(parts):
            assert not self.over, "nothing happens to a run that has ended"
            self.entries.append(ev.Entry(len(self.entries), self.now, event))
            self.execution.load(self.entries[-1:])
        return self

    def activate(self, *parts: Events, after: float = 0.0) -> list[ev.Event]:
        """Let facts happen, move the code *after* so many seconds, and append what it asked for."""
        self.happens(*parts)
        self.now += dt.timedelta(seconds=after)
        activation = self.execution.activate(self.now)
        asked = [] if activation is None else activation.events
        for event in asked:
            self.entries.append(ev.Entry(len(self.entries), self.now, event))
            if isinstance(event, ev.ExecutionContinued):
                self._segment, self._first_position = len(self.entries), event.next_position
        if self._cold or any(isinstance(event, ev.ExecutionContinued) for event in asked):
            self.crash()
        return asked

    def crash(self) -> None:
        """Lose the memory and begin again from the journal."""
        self.execution.evict()
        self.execution = self._make()

    def end(self) -> list[ev.Entry]:
        """Give up the memory, check the journal's rules and return it."""
        self.execution.evict()
        assert verify(self.entries) == []
        return self.entries

    def _make(self) -> Execution:
        made = execution_of(
            self.definition, self.run, entropy=self._entropy, first_position=self._first_position
        )
        made.load(self.entries[self._segment :])
        return made


_SHOWING = (ev.ExecutionStarted, ev.ExecutionResumed)


def violation_of(workflow: Callable[..., Any], *parts: Events, valid: bool = True) -> Violation:
    """Replay hand-written events by *workflow*, which must not fit them, and return how.

    The events keep the journal's own rules, unless a test says that they are not *valid* either.
    """
    driver = Driver(workflow, recorded=journal(*parts))
    activation = driver.execution.activate(driver.now)
    assert activation is not None, "the code fits"
    assert activation.violation is not None, activation.events
    assert names(activation.events) == ["ExecutionFailed"]
    ended = activation.events[0]
    assert isinstance(ended, ev.ExecutionFailed)
    assert ended.error.type == DETERMINISM_VIOLATION
    assert not ended.error.retryable
    assert ended.error.message == activation.violation.message
    assert ended.error.details == activation.violation.to_json()
    assert driver.execution.activate(driver.now) is None
    driver.execution.evict()
    breaches = verify([*driver.entries, ev.Entry(len(driver.entries), START, ended)])
    assert (breaches == []) is valid, breaches
    return activation.violation
