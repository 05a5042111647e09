"""What a store keeps for projectors: snapshots of runs, and who projects.

Rule 1: a snapshot is written only over the one it was computed from (compare-and-set): the one with the same
``last_event_seq`` and ``revision``. A snapshot that does not go on from the one before, but takes its place
as after a rebuild, has the next ``revision``; so nobody goes on from what was there before.
Rule 2: the first ``INLINE_STEPS_MAX`` steps of a run are in its row, the later ones have rows of their own.
Going on from a snapshot reads and writes the row and the later steps that events speak of, however many there
are.
Rule 3: snapshots can be made again from the journals. They go with their run.

Every adapter passes one suite, ``tests/conformance/store/test_snapshots.py``. All methods raise
``StoreUnavailable``. What an event does to a snapshot is in ``journal.snapshot``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from tidewheel.journal.snapshot import RunSnapshot, StepSnapshot, empty
from tidewheel.store.records import RunRef

#: So many steps of a run are in its snapshot's row, so much is rewritten for an event at most.
INLINE_STEPS_MAX: Final = 32


class Asked(NamedTuple):
    """A run whose snapshot somebody wants to go on from, and the steps that will be spoken of."""

    run: RunRef
    step_ids: Collection[str] = ()


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A run's snapshot as somebody goes on from it; ``is_new`` if nothing is stored yet.

    Of the steps ``snapshot`` has those that are in its row, and after them those of the later ones that were
    asked for; ``later`` says at which place each of these is.
    """

    key: bytes
    run: RunRef
    snapshot: RunSnapshot
    revision: int = 0
    step_count: int = 0
    later: dict[str, int] = {}
    is_new: bool = False


class LaterStep(NamedTuple):
    """A step that has a row of its own, and its place among the steps of its run."""

    place: int
    step: StepSnapshot


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot to be written in place of the one it was computed from.

    ``snapshot`` has no steps but those that are in its row, ``later`` are those of the others that changed;
    where it ``replaces`` what was there, all of them.
    """

    before: Held
    snapshot: RunSnapshot
    step_count: int
    later: tuple[LaterStep, ...] = ()
    replaces: bool = False

    @property
    def revision(self) -> int:
        """The revision that it has once it is written."""
        return self.before.revision + self.replaces


class Behind(NamedTuple):
    """A run whose latest public event, ``last_public_seq``, is not the latest that its snapshot has seen."""

    run: RunRef
    last_public_seq: int
    last_event_seq: int


class Page(NamedTuple):
    """What a look found among some runs, and the key after which the next one begins; None after the last."""

    behind: list[Behind]
    next_after: bytes | None


class Snapshots(Protocol):
    """Snapshots of all runs, for any number of projectors and whoever reads."""

    async def load(self, asked: Sequence[Asked]) -> list[Held | None]:
        """Read snapshots to go on from, in this order; None where there is no such run."""

    async def save(self, changes: Sequence[Change]) -> list[bool]:
        """Write those whose predecessors are still there, and tell for each whether it was written."""

    async def read(self, run: RunRef) -> RunSnapshot | None:
        """Read a whole snapshot; None where there is none."""

    async def look(
        self,
        namespace: str,
        *,
        after: bytes | None,
        limit: int,
        quiet_since: dt.datetime,
        projections: Sequence[str] = (),
    ) -> Page:
        """Look which of the next *limit* runs are behind, though all their events were published.

        Only runs count to which nothing was appended since *quiet_since*. A run is also behind if its
        snapshot is stale, or if one of *projections* has not seen its latest event. What is left of runs that
        are gone is deleted on the way.
        """

    async def attend(self, namespace: str, member: str, lease_s: float) -> list[str]:
        """Say that the projector *member* is alive, and return all that are, sorted."""

    async def leave(self, namespace: str, member: str) -> None:
        """Say that the projector *member* is gone."""


def unseen(key: bytes, run: RunRef) -> Held:
    """Return what a run is gone on from that has no snapshot yet."""
    return Held(key=key, run=run, snapshot=empty(run.run_id), is_new=True)


def going_on(before: Held, snapshot: RunSnapshot) -> Change:
    """Return the change to *snapshot*, which was made of *before* by adding events."""
    known = {step.step_id: step for step in before.snapshot.steps}
    places = {step_id: place for place, step_id in enumerate(known) if step_id not in before.later}
    places |= before.later
    inline: list[StepSnapshot] = []
    later: list[LaterStep] = []
    count = before.step_count
    for step in snapshot.steps:
        place = places.get(step.step_id)
        if place is None:
            place, count = count, count + 1
        if place < INLINE_STEPS_MAX:
            inline.append(step)
        elif step != known.get(step.step_id):
            later.append(LaterStep(place, step))
    return Change(
        before=before, snapshot=replace(snapshot, steps=tuple(inline)), step_count=count, later=tuple(later)
    )


def in_place_of(before: Held, snapshot: RunSnapshot) -> Change:
    """Return the change to *snapshot*, which is whole and owes nothing to *before*."""
    steps = snapshot.steps
    return Change(
        before=before,
        snapshot=replace(snapshot, steps=steps[:INLINE_STEPS_MAX]),
        step_count=len(steps),
        later=tuple(
            LaterStep(place, step)
            for place, step in enumerate(steps[INLINE_STEPS_MAX:], start=INLINE_STEPS_MAX)
        ),
        replaces=True,
    )
