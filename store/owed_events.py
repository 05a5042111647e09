"""From rows of the journal to the public events that the bus is owed.

Rule: what one row publishes depends on that row and on the context stored with it alone; whether the row can
be read concerns its own run alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidewheel.journal import events as ev
from tidewheel.journal.public import PublicEvent
from tidewheel.store.errors import Unreadable
from tidewheel.store.outbox import Outbox, Owed, OwedRow, Place, StoredPassage
from tidewheel.store.passages import entries_of
from tidewheel.store.publishing import events_after, read_context
from tidewheel.telemetry.context import TraceContext


class Told(NamedTuple):
    """What a row publishes, and where in a trace it was written, if that is known."""

    events: list[PublicEvent]
    trace: TraceContext | None = None


async def events_of(
    outbox: Outbox, asked: Sequence[tuple[Owed, OwedRow]]
) -> list[list[PublicEvent] | Unreadable]:
    """Return what each row publishes, or why that cannot be said."""
    return [one if isinstance(one, Unreadable) else one.events for one in await told_of(outbox, asked)]


async def told_of(outbox: Outbox, asked: Sequence[tuple[Owed, OwedRow]]) -> list[Told | Unreadable]:
    """Return the same with its place in a trace."""
    stored = await outbox.passages([owed.place(row) for owed, row in asked])
    read = [_entries(owed, row, passage) for (owed, row), passage in zip(asked, stored, strict=True)]
    inputs = await _inputs(outbox, asked, read)
    found: list[Told | Unreadable] = []
    for (owed, _), entries, passage in zip(asked, read, stored, strict=True):
        if isinstance(entries, Unreadable):
            found.append(entries)
        elif passage is None or passage.public is None:
            found.append(Told([]))
        else:
            given, before = inputs.get(owed.run_key), read_context(passage.public)
            found.append(Told(events_after(owed.run, owed.workflow, before, entries, given), before.trace))
    return found


def _entries(owed: Owed, row: OwedRow, passage: StoredPassage | None) -> list[ev.Entry] | Unreadable:
    run_id = owed.run.run_id
    if passage is None:
        return Unreadable(run_id, row.first_seq, "its row is missing")
    try:
        return entries_of([passage.row], row.first_seq, row.last_seq, lambda: run_id)
    except Unreadable as problem:
        return problem


async def _inputs(
    outbox: Outbox, asked: Sequence[tuple[Owed, OwedRow]], read: Sequence[list[ev.Entry] | Unreadable]
) -> dict[bytes, ev.Json]:
    """Return the inputs of runs that are admitted in what was *read*: ``RunStarted`` tells them then."""
    admitted = {
        owed.run_key: owed
        for (owed, _), entries in zip(asked, read, strict=True)
        if not isinstance(entries, Unreadable)
        and any(isinstance(entry.event, ev.RunAdmitted) for entry in entries)
    }
    if not admitted:
        return {}
    inputs: dict[bytes, ev.Json] = {}
    firsts = await outbox.passages([Place(run_key, 0) for run_key in admitted])
    for owed, passage in zip(admitted.values(), firsts, strict=True):
        entries = _entries(owed, OwedRow(first_seq=0, last_seq=0, size=0), passage)
        if not isinstance(entries, Unreadable) and isinstance(entries[0].event, ev.ExecutionStarted):
            inputs[owed.run_key] = entries[0].event.input
    return inputs
