"""Reading a journal as lanes: what the run asked for, and how each thing stood from when to when.

A lane is a step, a child run, a timer, a wait for a signal or a promise. ``Reader`` takes entries
one by one and keeps only the lanes that are open, and a count of the others: a watcher may follow
a run without end. What does not fit is left out and never an error: ``rules`` says what is wrong
with a journal. Nothing here knows how lanes are drawn.

Times are for people. An entry without one has its predecessor's, and a time before its
predecessor's, as clocks of two machines give it, is moved up to it. So spans never run backwards.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from msgspec import UNSET

from tidewheel.cli.timeline import text
from tidewheel.journal import events as ev
from tidewheel.journal.status import NEW, RunState, advance

Kind: TypeAlias = Literal["step", "child", "timer", "signal", "promise"]
OpenState: TypeAlias = Literal["queued", "running", "backoff", "parked", "waiting"]
ClosedState: TypeAlias = Literal["done", "failed", "skipped", "cancelled", "abandoned"]

CLOSED: Final[frozenset[str]] = frozenset({"done", "failed", "skipped", "cancelled", "abandoned"})
#: The kinds that execute something; the others only wait.
STEPS: Final[frozenset[Kind]] = frozenset({"step", "child"})


class Moment(NamedTuple):
    """A place in the journal: its time, if any entry so far had one, and its number."""

    at: dt.datetime | None
    seq: int


#: Before the first entry.
NOWHERE: Final = Moment(None, 0)


@dataclass(slots=True)
class Span:
    """How a lane stood for a while; an open end is now. ``failed``: an attempt that did not succeed."""

    state: OpenState
    start: Moment
    end: Moment | None = None
    failed: bool = False


@dataclass(slots=True, eq=False)
class Lane:
    """One thing the run asked for; ``due`` is when its retry or its timer comes."""

    kind: Kind
    path: str
    name: str
    segment: int
    spans: list[Span]
    state: OpenState | ClosedState
    attempts: int = 0
    due: dt.datetime | None = None
    error: ev.Error | None = None
    #: Executed where its run is, without a queue: it is begun as soon as it may be.
    is_inline: bool = False

    @property
    def is_step(self) -> bool:
        """Whether it executes something, rather than only waits."""
        return self.kind in STEPS

    def seconds(self, now: dt.datetime | None) -> float | None:
        """Return how long it took, up to *now* where it is open, or None where that is not known."""
        end = self.spans[-1].end
        until = now if end is None else end.at
        since = self.spans[0].start.at
        return None if since is None or until is None else (until - since).total_seconds()

    def turn(self, state: OpenState, moment: Moment, *, failed: bool = False) -> None:
        """End how it stood, as a failed attempt or not, and begin another state."""
        self._end(moment, failed=failed)
        self.state, self.due = state, None
        self.spans.append(Span(state, moment))

    def settle(self, state: ClosedState, moment: Moment) -> None:
        """Close it."""
        self._end(moment, failed=state == "failed")
        self.state, self.due = state, None

    def _end(self, moment: Moment, *, failed: bool) -> None:
        span = self.spans[-1]
        span.end, span.failed = moment, failed and span.state == "running"
        since = span.start.at
        if span.state == "backoff" and self.due and since and moment.at and since < self.due < moment.at:
            # The retry was due before its start was written: from then on it was in the queue, or began.
            span.end = Moment(self.due, moment.seq)
            self.spans.append(Span("running" if self.is_inline else "queued", span.end, moment))


@dataclass(slots=True)
class Reader:
    """What the entries so far say of a run.

    ``open`` has the open lanes by path, ``signals`` the paths of those that wait for a signal, and
    ``settled`` counts the closed ones by kind and state.
    """

    run_id: str = ""
    workflow: str = ""
    version: str = ""
    segment: int = 0
    state: RunState = NEW
    ending: ev.Event | None = None
    start: Moment | None = None
    latest: Moment = NOWHERE
    open: dict[str, Lane] = field(default_factory=dict)
    signals: set[str] = field(default_factory=set)
    settled: Counter[tuple[Kind, str]] = field(default_factory=Counter)

    def take(self, entry: ev.Entry) -> list[Lane]:
        """Take in the next entry and return the lanes it opened."""
        self.latest = self._moment(entry)
        if self.start is None or self.start.at is None:
            self.start = Moment(self.latest.at, entry.run_seq if self.start is None else self.start.seq)
        self.state = advance(self.state, entry.event)
        handler = _HANDLERS.get(type(entry.event))
        return [] if handler is None else list(handler(self, entry.event) or ())

    def seconds(self, now: dt.datetime | None) -> float | None:
        """Return how long the run has taken, up to *now* where it goes on, or None where nobody knows."""
        end, start = self.end(now), None if self.start is None else self.start.at
        return None if start is None or end is None else (end - start).total_seconds()

    def end(self, now: dt.datetime | None) -> dt.datetime | None:
        """Return the last time to show: of a run that goes on, *now*."""
        latest = self.latest.at
        if now is None or self.state.ended:
            return latest
        return now if latest is None else max(latest, now)

    def tally(self) -> Counter[tuple[Kind, str]]:
        """Return how many lanes of each kind are in each state."""
        return self.settled + Counter((lane.kind, lane.state) for lane in self.open.values())

    def _moment(self, entry: ev.Entry) -> Moment:
        at, before = entry.at, self.latest.at
        return Moment(before if at is None or (before is not None and at < before) else at, entry.run_seq)

    def begin(self, kind: Kind, path: str, name: str, state: OpenState) -> list[Lane]:
        """Open a lane at *path*, unless there is one, and return it."""
        if path in self.open:
            return []
        lane = Lane(kind, path, text.name(name), self.segment, [Span(state, self.latest)], state)
        self.open[path] = lane
        if kind == "signal":
            self.signals.add(path)
        return [lane]

    def settle(self, path: str, state: ClosedState, error: ev.Error | None = None) -> None:
        """Close and count the lane at *path*, if it is open."""
        lane = self.open.pop(path, None)
        if lane is None:
            return
        lane.error = error
        self.signals.discard(path)
        lane.settle(state, self.latest)
        self.settled[lane.kind, state] += 1

    def abandon(self) -> None:
        """Close every lane that is open."""
        for path in list(self.open):
            self.settle(path, "abandoned")


def _started(run: Reader, event: ev.ExecutionStarted) -> None:
    run.segment += 1
    run.workflow, run.version = text.name(event.workflow), text.name(event.version)
    if event.run_id is not UNSET and not run.run_id:
        run.run_id = text.plain(event.run_id)


def _ended(run: Reader, event: ev.Event) -> None:
    """What is open when a run or a segment ends gets no further answer that anybody waits for."""
    run.ending = event
    run.abandon()


def _scheduled(run: Reader, event: ev.InvokeScheduled) -> list[Lane]:
    key = "" if event.key is UNSET else event.key
    kind: Kind = "child" if event.kind == "workflow" else "step"
    is_inline = event.dispatch == "inline" and kind == "step"
    name = key or event.function_name or event.kind
    lanes = run.begin(kind, event.promise_id, name, "running" if is_inline else "queued")
    for lane in lanes:
        lane.is_inline = is_inline
    return lanes


def _attempted(run: Reader, event: ev.InvokeStarted) -> None:
    lane = run.open.get(event.promise_id)
    if lane is None:
        return
    if lane.state == "running" and event.attempt == lane.attempts + 1 == 1:
        lane.attempts = 1  # an inline step: its start is written late, or with its end
        return
    # A start while it runs: whoever ran it was lost.
    lane.turn("running", run.latest, failed=lane.state == "running")
    lane.attempts = max(lane.attempts, event.attempt)


def _retrying(run: Reader, event: ev.InvokeRetrying) -> None:
    lane = run.open.get(event.promise_id)
    if lane is not None:
        lane.turn("parked" if event.retry_at is None else "backoff", run.latest, failed=True)
        lane.attempts = max(lane.attempts, event.failed_attempt)
        lane.due, lane.error = event.retry_at, event.error


def _asked_again(run: Reader, event: ev.StepRetryRequested) -> None:
    lane = run.open.get(event.promise_id)
    if lane is not None:
        lane.turn("queued", run.latest)


def _completed(run: Reader, event: ev.InvokeCompleted | ev.PromiseResolved) -> None:
    lane = run.open.get(event.promise_id)
    if lane is not None and isinstance(event, ev.InvokeCompleted):
        lane.attempts = max(lane.attempts, event.attempt)
    error = None if event.result.error is UNSET else event.result.error
    run.settle(event.promise_id, "done" if error is None else "failed", error)


def _skipped(run: Reader, event: ev.StepSkipped) -> None:
    run.settle(event.promise_id, "skipped")


def _timer(run: Reader, event: ev.TimerScheduled) -> list[Lane]:
    lanes = run.begin("timer", event.promise_id, f"timer {text.duration(event.duration)}", "waiting")
    for lane in lanes:
        lane.due = event.fire_at
    return lanes


def _fired(run: Reader, event: ev.TimerFired) -> None:
    run.settle(event.promise_id, "done")


def _timer_cancelled(run: Reader, event: ev.TimerCancelled) -> None:
    run.settle(event.promise_id, "cancelled")


def waits(event: ev.ExecutionAwaiting) -> list[tuple[str, str]]:
    """Return the path and the name of each signal that a suspension waits for."""
    found = {wait.promise_id: wait.signal_name for wait in event.signals}
    if event.signal_promise_id is not UNSET and event.signal_name is not UNSET:
        found.setdefault(event.signal_promise_id, event.signal_name)
    return list(found.items())


def _awaiting(run: Reader, event: ev.ExecutionAwaiting) -> list[Lane]:
    """A wait for a signal has no event of its own: it lasts as long as suspensions list it."""
    if event.version is not UNSET:
        run.version = text.name(event.version)
    listed = dict(waits(event))
    for path in run.signals - listed.keys():
        run.settle(path, "cancelled")
    return [lane for path, name in listed.items() for lane in run.begin("signal", path, name, "waiting")]


def _received(run: Reader, event: ev.SignalReceived) -> list[Lane]:
    lanes = run.begin("signal", event.promise_id, event.signal_name, "waiting")
    run.settle(event.promise_id, "done")
    return lanes


def _promised(run: Reader, event: ev.PromiseCreated) -> list[Lane]:
    return run.begin("promise", event.promise_id, event.name, "waiting")


_HANDLERS: Final[dict[type[ev.Event], Callable[[Reader, Any], list[Lane] | None]]] = {
    ev.ExecutionStarted: _started,
    ev.ExecutionCompleted: _ended,
    ev.ExecutionFailed: _ended,
    ev.ExecutionCancelled: _ended,
    ev.ExecutionContinued: _ended,
    ev.InvokeScheduled: _scheduled,
    ev.InvokeStarted: _attempted,
    ev.InvokeRetrying: _retrying,
    ev.InvokeCompleted: _completed,
    ev.PromiseResolved: _completed,
    ev.StepSkipped: _skipped,
    ev.StepRetryRequested: _asked_again,
    ev.TimerScheduled: _timer,
    ev.TimerFired: _fired,
    ev.TimerCancelled: _timer_cancelled,
    ev.ExecutionAwaiting: _awaiting,
    ev.SignalReceived: _received,
    ev.PromiseCreated: _promised,
}
