"""A shell around the replay core that invents the outside world from a seed.

It keeps a journal in a list, derives from the journal alone what could happen next
(a step ends, a timer fires, a signal or an answer arrives, somebody cancels), lets
some of it happen in a random order, and activates the run. ``reenact`` then proves a
recorded journal: cut anywhere, replayed cold, and taken on with the recorded facts,
the code must ask for exactly what the journal says.
"""

from __future__ import annotations

import datetime as dt
import functools
import random
from collections.abc import Callable
from typing import Any

from tests.property.programs import SIGNALS, Node, app, interpret
from tidewheel.journal import events as ev
from tidewheel.journal.ids import PromiseId
from tidewheel.replay.execution import Execution
from tidewheel.sdk.program import execution_of

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
RUN = PromiseId("generated")
STEPS_MAX = 400

Maker = Callable[["CountingEntropy", int], Execution]


class CountingEntropy:
    """Chance that depends only on how much of the journal there is."""

    def __init__(self, journal: list[ev.Entry]) -> None:
        self._journal = journal
        self._drawn = 0

    def random(self) -> float:
        """A number in [0, 1)."""
        known = sum(isinstance(entry.event, ev.RandomGenerated) for entry in self._journal)
        self._drawn = max(self._drawn, known) + 1
        return (self._drawn * 0.137) % 1

    def uuid(self) -> str:
        """A UUID."""
        return f"{int(self.random() * 2**64):032x}"


def make(entropy: CountingEntropy, first_position: int) -> Execution:
    """Make an execution of the generated workflow."""
    definition = app.workflow_named(interpret)
    return execution_of(definition, RUN, entropy=entropy, first_position=first_position)


class Shell:
    """One run of one program under one order of arrivals."""

    def __init__(self, program: list[Node], seed: int) -> None:
        self.journal: list[ev.Entry] = []
        #: Lengths at which a cut would tear a segment's opening, which is written in one piece.
        self.uncuttable: set[int] = set()
        self._r = random.Random(seed)
        self._now = START
        self._signals_left = 6
        self._put(ev.ExecutionStarted(workflow="interpret", input=[program], now=START))
        self._execution = cold(self.journal, len(self.journal))

    def play(self) -> list[ev.Entry]:
        """Let things happen until the run ends; return its journal."""
        for step in range(STEPS_MAX):
            self._activate()
            if isinstance(self.journal[-1].event, ev.TERMINAL):
                break
            if step == STEPS_MAX // 2:
                self._fact(ev.CancelRequested(reason="too long"))
            for _ in range(self._r.choice((1, 1, 1, 2, 3))):
                self._something_happens()
            if self._r.random() < 0.1:
                self._execution.evict()
                self._execution = cold(self.journal, len(self.journal))
        else:
            message = f"the run did not end in {STEPS_MAX} steps"
            raise AssertionError(message)
        self._execution.evict()
        return self.journal

    def _something_happens(self) -> None:
        possible = open_facts(self.journal, self._r)
        if self._signals_left > 0 and (self._r.random() < 0.25 or not possible):
            self._signals_left -= 1
            self._deliver(self._r.choice(SIGNALS))
        elif self._r.random() < 0.01:
            self._fact(ev.CancelRequested(reason="changed my mind"))
        elif possible:
            for event in self._r.choice(possible)():
                if isinstance(event, ev.TimerFired):
                    self._now = max(self._now, fire_at(self.journal, event.promise_id))
                self._fact(event)
        else:
            for name in SIGNALS:
                self._deliver(name)
        self._now += dt.timedelta(seconds=self._r.choice((0, 0.25, 1)))

    def _deliver(self, name: str) -> None:
        known = [e.event for e in self.journal if isinstance(e.event, ev.SignalDelivered)]
        last = max((event.delivery_id for event in known if event.signal_name == name), default=0)
        payload = {"n": last, "of": name}
        self._fact(ev.SignalDelivered(signal_name=name, payload=payload, delivery_id=last + 1))

    def _fact(self, event: ev.Event) -> None:
        if isinstance(event, ev.CancelRequested) and any(
            isinstance(entry.event, ev.CancelRequested) for entry in segment(self.journal)
        ):
            return
        self._put(event)
        self._execution.load(self.journal[-1:])

    def _activate(self) -> None:
        activation = self._execution.activate(self._now)
        assert activation is None or activation.violation is None, activation
        began = len(self.journal)
        for event in activation.events if activation else ():
            self._put(event)
        if activation and any(isinstance(event, ev.ExecutionContinued) for event in activation.events):
            opening = len(segment(self.journal))
            self.uncuttable.update(range(len(self.journal) - opening, len(self.journal)))
            assert began < len(self.journal) - opening
            self._execution.evict()
            self._execution = cold(self.journal, len(self.journal))

    def _put(self, event: ev.Event) -> None:
        self.journal.append(ev.Entry(len(self.journal), self._now, event))


def segment(journal: list[ev.Entry]) -> list[ev.Entry]:
    """The entries of the current segment."""
    for place in range(len(journal) - 1, -1, -1):
        if isinstance(journal[place].event, ev.ExecutionContinued):
            return journal[place + 1 :]
    return journal


def open_facts(journal: list[ev.Entry], r: random.Random) -> list[Callable[[], list[ev.Event]]]:
    """What could happen next, judged by the journal alone."""
    open_: dict[str, ev.Event] = {}
    attempts: dict[str, int] = {}
    for entry in segment(journal):
        event = entry.event
        if isinstance(event, ev.InvokeScheduled | ev.TimerScheduled | ev.PromiseCreated):
            open_[event.promise_id] = event
        elif isinstance(event, ev.InvokeCompleted | ev.TimerFired | ev.PromiseResolved | ev.TimerCancelled):
            open_.pop(event.promise_id, None)
        elif isinstance(event, ev.InvokeRetrying):
            attempts[event.promise_id] = event.failed_attempt
    return [
        functools.partial(_facts_for, path, event, attempts.get(path, 0), r) for path, event in open_.items()
    ]


def _facts_for(path: str, event: ev.Event, failed: int, r: random.Random) -> list[ev.Event]:
    if isinstance(event, ev.TimerScheduled):
        return [ev.TimerFired(promise_id=path)]
    fails = r.random() < 0.2
    error = ev.Error(type="Broken", message=f"step {path}")
    value: Any = f"result of {path}"
    if isinstance(event, ev.InvokeScheduled) and event.kind == "operation":
        value = 7
    result = ev.Result(error=error) if fails else ev.Result(ok=value)
    if isinstance(event, ev.PromiseCreated):
        return [ev.PromiseResolved(promise_id=path, result=result)]
    started = ev.InvokeStarted(promise_id=path, attempt=failed + 1)
    if failed == 0 and r.random() < 0.1:
        return [started, ev.InvokeRetrying(promise_id=path, failed_attempt=1, error=error, retry_at=START)]
    return [started, ev.InvokeCompleted(promise_id=path, result=result, attempt=failed + 1)]


def fire_at(journal: list[ev.Entry], path: str) -> dt.datetime:
    """When a timer is due."""
    for entry in journal:
        if isinstance(entry.event, ev.TimerScheduled) and entry.event.promise_id == path:
            assert entry.event.fire_at is not None
            return entry.event.fire_at
    raise AssertionError(path)


FACTS = (
    ev.InvokeStarted, ev.InvokeCompleted, ev.InvokeRetrying, ev.TimerFired, ev.SignalDelivered,
    ev.CancelRequested, ev.PromiseResolved,
)  # fmt: skip


class Diverged(AssertionError):
    """A replay asked for something else than the journal has."""


def reenact(journal: list[ev.Entry], cut: int, *, cold_always: bool = False, maker: Maker = make) -> None:
    """Replay *journal* up to *cut* cold, then go on with its facts; the moves must be its moves."""
    place = cut
    execution = cold(journal, place, maker)
    try:
        while place < len(journal):
            if isinstance(journal[place].event, FACTS):
                execution.load(journal[place : place + 1])
                place += 1
                continue
            moved = _compare(execution, journal, place, cut)
            continued = any(
                isinstance(e.event, ev.ExecutionContinued) for e in journal[place : place + moved]
            )
            place += moved
            if (cold_always or continued) and place < len(journal):
                execution.evict()
                execution = cold(journal, place, maker)
    finally:
        execution.evict()


def cold(journal: list[ev.Entry], length: int, maker: Maker = make) -> Execution:
    """Make an execution from the last segment of the first *length* entries."""
    known = journal[:length]
    current = segment(known)
    before = known[-len(current) - 1].event if len(current) < len(known) else None
    first_position = before.next_position if isinstance(before, ev.ExecutionContinued) else 0
    execution = maker(CountingEntropy(known), first_position)
    execution.load(current)
    return execution


def _compare(execution: Execution, journal: list[ev.Entry], place: int, cut: int) -> int:
    activation = execution.activate(_next_now(journal, place))
    asked = [] if activation is None else activation.events
    recorded = [entry.event for entry in journal[place : place + len(asked)]]
    if not asked or asked != recorded:
        message = f"cut at {cut}, event {place}: journal has {recorded}, code asked for {asked}"
        raise Diverged(message)
    return len(asked)


def _next_now(journal: list[ev.Entry], place: int) -> dt.datetime:
    for entry in journal[place:]:
        if isinstance(entry.event, ev.ExecutionResumed) and entry.event.now is not None:
            return entry.event.now
    return START
