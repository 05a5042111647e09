"""A segment of a journal, indexed the way replay asks for it.

One pass reads each event once. Commands are filed by ``CommandId``, facts by the
promise they settle, and suspensions by what was shown after them. Facts that no
``ExecutionResumed`` has shown yet are kept in the order they took effect, which is
the order a live activation shows them in.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.journal.ids import CommandId, CommandType, path_order, position_of
from tidewheel.replay.violation import Violation

#: The command type that an invoke of each kind is numbered under.
INVOKE_TYPES: dict[str, CommandType] = {
    "function": CommandType.TASK,
    "http": CommandType.TASK,
    "workflow": CommandType.CHILD,
    "operation": CommandType.OPERATION,
}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Record(msgspec.Struct, gc=False, eq=False):
    """A command the journal has: where it stands, what it asked, whether the code asked again."""

    path: str
    #: The last part of its path; -1 where it has none.
    position: int
    event: Any
    used: bool = False


class SignalRecord:
    """A signal wait the journal knows of, and what it received."""

    __slots__ = ("at_once", "n", "path", "received", "signal_name", "used")

    def __init__(self, path: str, signal_name: str, n: int | None) -> None:
        self.path = path
        self.signal_name = signal_name
        self.n = n
        self.received: ev.SignalReceived | None = None
        #: Received while the code was moving: the delivery was already there when it asked.
        self.at_once = False
        self.used = False


class Resume(msgspec.Struct, gc=False, eq=False):
    """One recorded activation: the facts it showed, and the time it showed them at."""

    applied: list[str]
    now: dt.datetime


class History:
    """What one segment of a journal says. ``observe`` its entries in order, then ask."""

    def __init__(self, *, first_position: int = 0) -> None:
        self.first_position = first_position
        self.started: ev.ExecutionStarted | None = None
        self.started_at = _EPOCH
        self.admitted = False
        self.resumes: list[Resume] = []
        #: The suspension the run is in; None while an activation is unfinished.
        self.waiting: ev.ExecutionAwaiting | None = None
        self.terminal: ev.Event | None = None
        self.cancel: ev.CancelRequested | None = None
        self.commands: dict[CommandId, Record] = {}
        #: How many of them the code has not asked for again.
        self.unasked = 0
        self.positions: set[int] = set()
        self.signals: dict[str, SignalRecord] = {}
        self.facts: dict[str, ev.Result] = {}
        #: The event that each fact came with: a timer does not complete a step.
        self.settled_by: dict[str, type] = {}
        #: Members and results of join sets that the code has not asked for again, by the set's path.
        self.submitted: defaultdict[str, deque[str]] = defaultdict(deque)
        self.awaited: defaultdict[str, deque[str]] = defaultdict(deque)
        self.deliveries: defaultdict[str, deque[ev.SignalDelivered]] = defaultdict(deque)
        #: Facts that no activation has shown, and when they took effect: paths, and "cancel".
        self.unshown: dict[str, int] = {}
        self.moved = False
        self._counts: defaultdict[CommandType, int] = defaultdict(int)
        self._delivered_at: dict[tuple[str, int], int] = {}
        self._signals_by_n: dict[int, SignalRecord] | None = None

    def observe(self, entry: ev.Entry) -> None:
        """Take in the next event of the segment."""
        handler = _HANDLERS.get(type(entry.event))
        if handler is not None:
            handler(self, entry.event, entry)

    def settle(self, path: str, result: ev.Result, kind: type, seq: int) -> None:
        """Take in what a promise came to first, by an event of this *kind* at *seq*."""
        if path not in self.facts:
            self.facts[path] = result
            self.settled_by[path] = kind
            self.unshown[path] = seq

    def signal(self, n: int) -> SignalRecord | None:
        """Return the n-th signal wait. Journals that do not number them count by position."""
        if self._signals_by_n is None:
            known = sorted(self.signals.values(), key=lambda record: path_order(record.path))
            numbered = all(record.n is not None for record in known)
            self._signals_by_n = {
                (record.n if numbered and record.n is not None else place): record
                for place, record in enumerate(known)
            }
        return self._signals_by_n.get(n)

    def delivered_at(self, delivery: ev.SignalDelivered) -> int:
        """When a delivery arrived, as its place in the journal."""
        return self._delivered_at[delivery.signal_name, delivery.delivery_id]

    def undelivered(self) -> list[ev.SignalDelivered]:
        """Deliveries that nobody has consumed, oldest first."""
        waiting = [delivery for deliveries in self.deliveries.values() for delivery in deliveries]
        return sorted(waiting, key=self.delivered_at)

    def orphans(self) -> list[Violation]:
        """Commands the journal has and the code never asked for."""
        if not self.commands and not self.signals:
            return []
        found = [
            Violation(str(command), *_told_by(record.event), None)
            for command, record in self.commands.items()
            if not record.used
        ]
        found += [
            Violation(f"{command}.{verb}", "promise_id", left[0], None)
            for command, record in self.commands.items()
            if command.type is CommandType.JOIN_SET
            for verb, left in (("submit", self.submitted[record.path]), ("next", self.awaited[record.path]))
            if left
        ]
        self.signal(0)
        found += [
            Violation(str(CommandId(CommandType.SIGNAL, n)), "signal_name", record.signal_name, None)
            for n, record in (self._signals_by_n or {}).items()
            if record.received is not None and not record.used
        ]
        return found

    def _file(self, type_: CommandType, path: str | None, event: Any, which: int | str | None = None) -> None:
        if which is None:
            which = self._counts[type_]
            self._counts[type_] += 1
        command = CommandId(type_, which)
        position = -1
        if path is not None:
            position = position_of(path)
            self.positions.add(position)
        known = self.commands.get(command)
        if known is None or known.used:
            self.unasked += 1
        self.commands[command] = Record(path or "", position, event)
        self.moved = True

    def _signal(self, path: str, name: str, n: Any) -> SignalRecord:
        record = self.signals.get(path)
        if record is None:
            record = SignalRecord(path, name, None if n is UNSET else n)
            self.signals[path] = record
            self.positions.add(position_of(path))
            self._signals_by_n = None
        elif record.n is None and n is not UNSET:
            record.n = n
            self._signals_by_n = None
        return record


def _told_by(event: Any) -> tuple[str, Any]:
    """The field that tells a reader which command this was, and its value."""
    for field in ("function_name", "name", "key", "duration", "kind", "promise_id", "join_set_id"):
        value = getattr(event, field, UNSET)
        if value is not UNSET:
            return field, value
    return "type", type(event).__name__


Handler: TypeAlias = Callable[[History, Any, ev.Entry], None]


def _files(type_: CommandType, path_field: str | None) -> Handler:
    """Make the handler of a command that is numbered by its type alone."""

    def file(history: History, event: Any, _entry: ev.Entry) -> None:
        path = None if path_field is None else getattr(event, path_field)
        history._file(type_, path, event)

    return file


def _settles(history: History, event: Any, entry: ev.Entry) -> None:
    history.settle(event.promise_id, event.result, type(event), entry.run_seq)


def _fires(history: History, event: ev.TimerFired, entry: ev.Entry) -> None:
    history.settle(event.promise_id, ev.NOTHING, ev.TimerFired, entry.run_seq)


def _starts(history: History, event: ev.ExecutionStarted, entry: ev.Entry) -> None:
    history.started = event
    history.started_at = event.now or entry.at or _EPOCH
    history.admitted = event.admission == "now"


def _admits(history: History, _event: ev.RunAdmitted, _entry: ev.Entry) -> None:
    history.admitted = True


def _schedules(history: History, event: ev.InvokeScheduled, _entry: ev.Entry) -> None:
    which = None if event.key is UNSET else event.key
    history._file(INVOKE_TYPES[event.kind], event.promise_id, event, which)


def _joins(history: History, event: ev.JoinSetSubmitted, _entry: ev.Entry) -> None:
    history.submitted[event.join_set_id].append(event.promise_id)
    history.moved = True


def _hands_out(history: History, event: ev.JoinSetAwaited, _entry: ev.Entry) -> None:
    history.awaited[event.join_set_id].append(event.promise_id)
    history.moved = True


def _delivers(history: History, event: ev.SignalDelivered, entry: ev.Entry) -> None:
    history.deliveries[event.signal_name].append(event)
    history._delivered_at[event.signal_name, event.delivery_id] = entry.run_seq


def _receives(history: History, event: ev.SignalReceived, entry: ev.Entry) -> None:
    record = history._signal(event.promise_id, event.signal_name, event.n)
    record.received = event
    waiting = history.deliveries[event.signal_name]
    for delivery in waiting:
        if delivery.delivery_id == event.delivery_id:
            waiting.remove(delivery)
            break
    if history.waiting is None:
        record.at_once = True
        history.facts[event.promise_id] = ev.Result(ok=event.payload)
        history.moved = True
    else:
        # Its turn is its delivery's: written late, but it took effect in that order.
        took_effect = history._delivered_at.get((event.signal_name, event.delivery_id), entry.run_seq)
        history.settle(event.promise_id, ev.Result(ok=event.payload), ev.SignalReceived, took_effect)


def _cancels(history: History, event: ev.CancelRequested, entry: ev.Entry) -> None:
    if history.cancel is None:
        history.cancel = event
        history.unshown[ev.CANCEL] = entry.run_seq


def _suspends(history: History, event: ev.ExecutionAwaiting, _entry: ev.Entry) -> None:
    history.waiting = event
    history.moved = True
    for wait in event.signals:
        history._signal(wait.promise_id, wait.signal_name, wait.n)
    if event.signal_promise_id is not UNSET and event.signal_name is not UNSET:
        history._signal(event.signal_promise_id, event.signal_name, UNSET)


def _resumes(history: History, event: ev.ExecutionResumed, entry: ev.Entry) -> None:
    if event.applied is UNSET:
        applied = sorted(history.unshown, key=history.unshown.__getitem__)
    else:
        applied = event.applied
    for one in applied:
        history.unshown.pop(one, None)
    history.resumes.append(Resume(applied, event.now or entry.at or _EPOCH))
    history.waiting = None


def _ends(history: History, event: ev.Event, _entry: ev.Entry) -> None:
    history.terminal = event
    # A run that was cancelled before its first activation has an end, but its code never ran.
    history.moved = history.moved or not isinstance(event, ev.ExecutionCancelled)


#: What each event means to replay. Events that are not here mean nothing to it.
_HANDLERS: dict[type, Handler] = {
    ev.ExecutionStarted: _starts,
    ev.RunAdmitted: _admits,
    ev.CancelRequested: _cancels,
    ev.ExecutionAwaiting: _suspends,
    ev.ExecutionResumed: _resumes,
    ev.ExecutionCompleted: _ends,
    ev.ExecutionFailed: _ends,
    ev.ExecutionCancelled: _ends,
    ev.ExecutionContinued: _ends,
    ev.InvokeScheduled: _schedules,
    ev.InvokeCompleted: _settles,
    ev.StepSkipped: _settles,
    ev.PromiseResolved: _settles,
    ev.TimerFired: _fires,
    ev.SignalDelivered: _delivers,
    ev.SignalReceived: _receives,
    ev.JoinSetSubmitted: _joins,
    ev.JoinSetAwaited: _hands_out,
    ev.JoinSetCreated: _files(CommandType.JOIN_SET, "join_set_id"),
    ev.TimerScheduled: _files(CommandType.TIMER, "promise_id"),
    ev.TimerCancelled: _files(CommandType.TIMER_CANCEL, None),
    ev.PromiseCreated: _files(CommandType.PROMISE, "promise_id"),
    ev.RandomGenerated: _files(CommandType.RANDOM, "promise_id"),
    ev.TimeRecorded: _files(CommandType.TIME, "promise_id"),
    ev.StateSet: _files(CommandType.STATE, None),
    ev.StateCleared: _files(CommandType.STATE, None),
}
