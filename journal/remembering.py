"""What a run remembers in ``ctx.state``, read from its journal."""

from __future__ import annotations

from collections.abc import Iterable

from tidewheel.journal import events as ev


def remembered(segment: Iterable[ev.Entry]) -> dict[str, ev.Json]:
    """Return the values that a run's current *segment* leaves it with; its start carries the earlier ones."""
    values: dict[str, ev.Json] = {}
    for entry in segment:
        match entry.event:
            case ev.ExecutionStarted(state=dict() as carried):
                values = dict(carried)
            case ev.StateSet(key=key, value=value):
                values[key] = value
            case ev.StateCleared(key=key):
                values.pop(key, None)
            case _:
                pass
    return values
