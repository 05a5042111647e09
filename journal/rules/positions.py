"""CF, positions: a path in the call tree is one thing, once.

A signal wait has no event of its own: it is listed by each ``ExecutionAwaiting``
while it is open and closed by ``SignalReceived``, so it may appear many times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET

from tidewheel.journal.events import (
    Entry,
    Event,
    ExecutionAwaiting,
    InvokeScheduled,
    JoinSetCreated,
    PromiseCreated,
    RandomGenerated,
    SignalReceived,
    TimeRecorded,
    TimerScheduled,
)
from tidewheel.journal.rules.registry import CLOSING, Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

INVOKE = "an invoke"
WAIT = "a signal wait"
#: The events that use a position as something.
USES = (
    InvokeScheduled,
    TimerScheduled,
    RandomGenerated,
    TimeRecorded,
    PromiseCreated,
    JoinSetCreated,
    SignalReceived,
    ExecutionAwaiting,
)


@rule("CF-7", *USES)
def promise_has_one_kind(entries: Sequence[Entry]) -> Iterator[Found]:
    """A promise is an invoke, a timer, a signal wait, a promise, a value or a join set: one of them."""
    kinds: dict[str, str] = {}
    for entry in entries:
        for use in _uses(entry.event):
            kind = kinds.setdefault(use.pid, use.kind)
            if kind != use.kind:
                yield entry, f"{use.pid} is used as {use.kind}, but it is {kind}"


@rule("CF-8", *USES, *CLOSING, run_wide=True)
def position_allocated_once(entries: Sequence[Entry]) -> Iterator[Found]:
    """A position is taken once in the whole run, and a signal wait keeps its name.

    Two kinds in one segment are CF-7's, a second InvokeScheduled there is SE-5's.
    """
    taken: dict[str, tuple[int, int, _Use]] = {}
    segment = 0
    for entry in entries:
        for use in _uses(entry.event):
            before, at, first = taken.get(use.pid, (segment, entry.run_seq, None))
            if before != segment:
                yield entry, f"position {use.pid} was already taken at {at}, in an earlier segment"
            elif first is not None and first.clashes(use):
                yield entry, f"position {use.pid} was already taken at {at}"
            if first is None or before != segment:
                taken[use.pid] = (segment, entry.run_seq, use)
        segment += type(entry.event) in CLOSING


class _Use(NamedTuple):
    """A position used as some kind of promise; a signal wait also has a name, where it is known."""

    pid: str
    kind: str
    name: str | None = None

    def clashes(self, other: _Use) -> bool:
        """Tell whether *other*, of the same segment, takes the position a second time."""
        if self.kind != other.kind or self.kind == INVOKE:
            return False
        return self.kind != WAIT or (None not in (self.name, other.name) and self.name != other.name)


def _uses(event: Event) -> Iterator[_Use]:
    match event:
        case InvokeScheduled(promise_id=pid):
            yield _Use(pid, INVOKE)
        case ExecutionAwaiting():
            for wait in event.signals:
                yield _Use(wait.promise_id, WAIT, wait.signal_name)
            if event.kind == "signal" and event.signal_promise_id is not UNSET:
                name = None if event.signal_name is UNSET else event.signal_name
                yield _Use(event.signal_promise_id, WAIT, name)
        case SignalReceived(promise_id=pid, signal_name=name):
            yield _Use(pid, WAIT, name)
        case TimerScheduled(promise_id=pid):
            yield _Use(pid, "a timer")
        case RandomGenerated(promise_id=pid):
            yield _Use(pid, "a random value")
        case TimeRecorded(promise_id=pid):
            yield _Use(pid, "a time")
        case PromiseCreated(promise_id=pid):
            yield _Use(pid, "a promise")
        case JoinSetCreated(join_set_id=pid):
            yield _Use(pid, "a join set")
