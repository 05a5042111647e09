"""CF, continue-as-new: what one segment leaves open, the next one begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidewheel.journal.events import (
    CancelRequested,
    Entry,
    ExecutionContinued,
    ExecutionStarted,
    InvokeScheduled,
    JoinSetCreated,
    PromiseCreated,
    RandomGenerated,
    SignalDelivered,
    SignalReceived,
    TimeRecorded,
    TimerScheduled,
)
from tidewheel.journal.ids import position_of
from tidewheel.journal.jsonform import shown
from tidewheel.journal.rules.registry import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: What may stand between the start of a segment and the signals it takes over.
_OPENING = frozenset({ExecutionStarted, SignalDelivered, CancelRequested})
_ALLOCATING = (
    InvokeScheduled, TimerScheduled, RandomGenerated, TimeRecorded, PromiseCreated, SignalReceived,
    JoinSetCreated,
)  # fmt: skip


@rule("CF-18", run_wide=True)
def unconsumed_signals_carried_over(entries: Sequence[Entry]) -> Iterator[Found]:
    """A segment begins with every delivery that the one before it did not consume."""
    open_: dict[tuple[str, int], None] = {}
    owed: dict[tuple[str, int], None] = {}
    for entry in entries:
        event = entry.event
        if owed and type(event) not in _OPENING:
            for name, number in owed:
                yield entry, f"delivery {number} of {shown(name)} was not consumed and not carried over"
            owed = {}
        if type(event) is SignalDelivered:
            open_[event.signal_name, event.delivery_id] = None
            owed.pop((event.signal_name, event.delivery_id), None)
        elif type(event) is SignalReceived:
            open_.pop((event.signal_name, event.delivery_id), None)
        elif type(event) is ExecutionContinued:
            owed, open_ = open_, {}


@rule("CF-19", ExecutionContinued, *_ALLOCATING, run_wide=True)
def positions_go_on(entries: Sequence[Entry]) -> Iterator[Found]:
    """Positions go on across continue-as-new: none of a segment stands before next_position."""
    first = 0
    for entry in entries:
        event = entry.event
        if type(event) is ExecutionContinued:
            first = event.next_position
            continue
        path = event.join_set_id if isinstance(event, JoinSetCreated) else getattr(event, "promise_id", "")
        if path and position_of(path) < first:
            yield entry, f"{path} stands before {first}, where this segment's positions begin"
