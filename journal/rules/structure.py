"""S: a journal's numbers have no holes, and a segment starts once and ends once.

``ExecutionContinued`` ends its segment as a terminal event does; the next segment
follows it legally. Entries that could not be read are counted, not judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidewheel.journal.events import CancelRequested, Entry, ExecutionCancelled, ExecutionStarted
from tidewheel.journal.jsonform import UNREADABLE
from tidewheel.journal.rules.registry import CLOSING, Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@rule("S-1", run_wide=True)
def monotonic_sequence(entries: Sequence[Entry]) -> Iterator[Found]:
    """Sequence numbers start at 0 and rise by one."""
    expected = 0
    for entry in entries:
        if entry.run_seq != expected:
            yield entry, f"run_seq is {entry.run_seq}, expected {expected}"
        expected = entry.run_seq + 1


@rule("S-2")
def starts_with_started(entries: Sequence[Entry]) -> Iterator[Found]:
    """The first event of every segment is ExecutionStarted."""
    if not entries:
        yield None, "the journal is empty, expected ExecutionStarted"
        return
    first = entries[0]
    if not isinstance(first.event, ExecutionStarted) and first.event is not UNREADABLE:
        yield first, f"the first event is {_name(first)}, expected ExecutionStarted"


@rule("S-3", *CLOSING)
def single_terminal(entries: Sequence[Entry]) -> Iterator[Found]:
    """A segment has at most one terminal event."""
    terminal: Entry | None = None
    for entry in entries:
        if type(entry.event) not in CLOSING:
            continue
        if terminal is not None:
            yield entry, f"{_name(entry)} although {_name(terminal)} ended the run at {terminal.run_seq}"
        terminal = terminal or entry


@rule("S-4")
def terminal_is_last(entries: Sequence[Entry]) -> Iterator[Found]:
    """A terminal event is the final event of its segment."""
    terminal: Entry | None = None
    for entry in entries:
        if terminal is not None and entry.event is not UNREADABLE:
            yield entry, f"{_name(entry)} follows {_name(terminal)} at {terminal.run_seq}, which ends the run"
        elif type(entry.event) in CLOSING:
            terminal = entry


@rule("S-5", CancelRequested, ExecutionCancelled)
def cancelled_requires_requested(entries: Sequence[Entry]) -> Iterator[Found]:
    """ExecutionCancelled requires a preceding CancelRequested."""
    requested = False
    for entry in entries:
        if isinstance(entry.event, CancelRequested):
            requested = True
        elif isinstance(entry.event, ExecutionCancelled) and not requested:
            yield entry, "ExecutionCancelled, but no CancelRequested precedes it"


@rule("S-6", ExecutionStarted)
def started_once(entries: Sequence[Entry]) -> Iterator[Found]:
    """A segment has one ExecutionStarted."""
    first: Entry | None = None
    for entry in entries:
        if not isinstance(entry.event, ExecutionStarted):
            continue
        if first is not None:
            yield entry, f"a second ExecutionStarted; the first is at {first.run_seq}"
        first = first or entry


@rule("S-7", CancelRequested)
def cancel_requested_once(entries: Sequence[Entry]) -> Iterator[Found]:
    """A segment has at most one CancelRequested."""
    first: Entry | None = None
    for entry in entries:
        if not isinstance(entry.event, CancelRequested):
            continue
        if first is not None:
            yield entry, f"a second CancelRequested; the first is at {first.run_seq}"
        first = first or entry


def _name(entry: Entry) -> str:
    return type(entry.event).__name__
