"""Events on top of what was seen before: which go on from it, which come too early, and which cannot be read.

Rule 1: what was seen already is passed over. Rule 2: an event follows the one that its ``prev_seq`` names; if
that was not seen it is early, and so are those after it. Rule 3: an event that cannot be reduced stops its
run: what it means is in the journal.

Pure. Whatever keeps something per run goes by these rules: snapshots, and users' projections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tidewheel.journal.public import PublicEvent
from tidewheel.journal.snapshot import RunSnapshot, SnapshotBuilder, has_gap


class Followed(NamedTuple):
    """How far a run was followed: the latest event that was taken in, and the one that could not be."""

    seq: int
    taken: tuple[PublicEvent, ...] = ()
    broken: PublicEvent | None = None
    reason: str = ""


def follow(seq: int, events: Iterable[PublicEvent], take: Callable[[PublicEvent], object]) -> Followed:
    """Call *take* with each of *events* that goes on from *seq*; they may come in any order, and repeat."""
    taken: list[PublicEvent] = []
    for event in sorted(events, key=lambda event: event.run_seq):
        if event.run_seq <= seq:
            continue
        if has_gap(seq, event.prev_seq):
            break
        try:
            take(event)
        except Exception as problem:  # noqa: BLE001 - whatever is in an event, it must not stop other runs
            return Followed(seq, tuple(taken), event, f"{type(problem).__name__}: {problem}")
        taken.append(event)
        seq = event.run_seq
    return Followed(seq, tuple(taken))


def folded(snapshot: RunSnapshot, events: Iterable[PublicEvent]) -> tuple[RunSnapshot, Followed]:
    """Return *snapshot* after those of *events* that go on from it; it is not stale if any did."""
    builder = SnapshotBuilder(snapshot)
    followed = follow(snapshot.last_event_seq, events, builder.apply)
    return builder.freeze(), followed
