"""What this process knows of the traces of the runs it works on, for as long as it works on them.

Rule: what goes on without delay is in one trace; what was delayed begins one of its own, and links to what it
goes on from. A *stretch* is what a worker does for a run from the message, or the timer, that woke it until
nothing is left to do: its turns have one parent.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

import msgspec

from tidewheel.telemetry.context import TraceContext

if TYPE_CHECKING:
    from tidewheel.telemetry.spans import OpenSpan

#: Runs that are remembered; of others the journal knows where their trace began.
RUNS_MAX: Final = 10_000


class Cause(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The message that asked for a turn, and what it carried; one that came before is delayed."""

    trace: TraceContext | None
    queue: str
    message_id: str
    is_redelivered: bool = False


class RunTrace:
    """One run: where its trace began, what its turns are children of, and the latest of them."""

    __slots__ = ("_asked_by", "_turn", "_turn_parent", "cause", "latest", "origin", "parent", "workflow")

    def __init__(self) -> None:
        self.workflow = ""
        #: Who started the run, as its journal says.
        self.origin: TraceContext | None = None
        #: The parent of this stretch's turns, and the latest that was committed.
        self.parent: TraceContext | None = None
        self.latest: TraceContext | None = None
        #: What asks for the next turn.
        self.cause: Cause | None = None
        #: The turn that is under way, what it is a child of, and what asked for it.
        self._turn: OpenSpan | None = None
        self._turn_parent: TraceContext | None = None
        self._asked_by: Cause | None = None

    def take(self, turn: OpenSpan, parent: TraceContext | None) -> None:
        """A turn is under way; what asked for it asks for no other."""
        self._turn, self._turn_parent = turn, parent
        self._asked_by, self.cause = self.cause, None

    def committed(self, trace: TraceContext | None) -> tuple[OpenSpan, Cause | None] | None:
        """The turn of *trace* was committed: return it, and what asked for it, if it is the one under way."""
        turn = self._turn
        if turn is None or turn.trace != trace:
            return None
        self._turn = None
        self.latest, self.parent = turn.trace, self._turn_parent or turn.trace
        return turn, self._asked_by

    def dropped(self) -> None:
        """The turn was not committed, and was never there: what asked for it asks for another."""
        if self._turn is not None:
            self._turn = None
            self.cause = self.cause or self._asked_by


class RunTraces:
    """The runs that were worked on last."""

    def __init__(self, runs_max: int = RUNS_MAX) -> None:
        self._runs_max = runs_max
        self._runs: OrderedDict[Hashable, RunTrace] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    def of(self, run: Hashable) -> RunTrace:
        """Return what is known of *run*, which may be nothing yet."""
        found = self._runs.get(run)
        if found is None:
            found = self._runs[run] = RunTrace()
            if len(self._runs) > self._runs_max:
                self._runs.popitem(last=False)
        else:
            self._runs.move_to_end(run)
        return found

    def latest(self, run: Hashable) -> TraceContext | None:
        """Return where *run* is in its trace, as far as this process knows."""
        found = self._runs.get(run)
        if found is None:
            return None
        return found.latest or found.parent or found.origin

    def forget(self, run: Hashable) -> None:
        """The run has ended."""
        self._runs.pop(run, None)


def parent_and_links(
    known: RunTrace, *, is_delayed: bool
) -> tuple[TraceContext | None, tuple[TraceContext, ...]]:
    """Return what the next turn is a child of, if of anything, and what it links to beside that."""
    cause, before = known.cause, known.latest or known.origin
    parent = known.parent
    if cause is not None:
        parent = None if cause.is_redelivered else cause.trace
    elif is_delayed:
        parent = None
    linked: dict[TraceContext, None] = {}
    for one in (cause.trace if cause is not None else None, before, known.origin):
        if one is not None and one != parent and (parent is None or one.trace_id != parent.trace_id):
            linked[one] = None
    return parent, tuple(linked)
