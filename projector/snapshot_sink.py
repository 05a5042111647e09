"""Snapshots as a sink: many runs are loaded, reduced and saved in two exchanges.

Somebody else may have written meanwhile: the comparison in the store tells, and then it is done again from
what is there now. Healing reads the whole journal, which is what a rebuild does too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from tidewheel.journal.public import PublicEvent
from tidewheel.journal.snapshot import RunSnapshot, snapshot_of
from tidewheel.projector.folding import Followed, folded
from tidewheel.store.errors import StoreUnavailable
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef
from tidewheel.store.snapshots import Asked, Change, Held, going_on, in_place_of

#: How often a run is tried again that somebody else wrote at the same time.
TRIES_MAX: Final = 10


class SnapshotSink:
    """See the module."""

    name = "snapshots"

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots = store.snapshots

    async def prepare(self) -> None:
        """Every store has a place for snapshots."""

    async def take(self, runs: Mapping[RunRef, Sequence[PublicEvent]]) -> dict[RunRef, Followed]:
        """Reduce what goes on from the snapshots, and save them."""
        found: dict[RunRef, Followed] = {}
        left = dict(runs)
        for _ in range(TRIES_MAX):
            if not left:
                return found
            tried = await self._once(left)
            found |= tried
            left = {run: events for run, events in left.items() if run not in tried}
        raise StoreUnavailable(f"the snapshots of {len(left)} runs are written by others all the time")

    async def _once(self, runs: Mapping[RunRef, Sequence[PublicEvent]]) -> dict[RunRef, Followed]:
        """Return how far runs were followed; those that somebody else wrote meanwhile are left out."""
        asked = [Asked(run, _step_ids(events)) for run, events in runs.items()]
        held = await self._snapshots.load(asked)
        outcomes: dict[RunRef, Followed] = {}
        changes: list[tuple[Change, Followed]] = []
        for (run, events), before in zip(runs.items(), held, strict=True):
            if before is None:
                # The run is gone, and with it what its events were about.
                outcomes[run] = Followed(max(event.run_seq for event in events))
                continue
            snapshot, followed = folded(before.snapshot, events)
            if followed.taken:
                changes.append((going_on(before, replace(snapshot, stale=False)), followed))
            else:
                outcomes[run] = followed
        if changes:
            written = await self._snapshots.save([change for change, _ in changes])
            for (change, followed), is_written in zip(changes, written, strict=True):
                if is_written:
                    outcomes[change.before.run] = followed
        return outcomes

    async def halt(self, run: RunRef) -> None:
        """Mark the run's snapshot as stale."""
        for _ in range(TRIES_MAX):
            (held,) = await self._snapshots.load([Asked(run)])
            if held is None or held.snapshot.stale:
                return
            stale = going_on(held, replace(held.snapshot, stale=True))
            if (await self._snapshots.save([stale]))[0]:
                return

    async def heal(self, run: RunRef) -> int | None:
        """Make the run's snapshot again from its journal."""
        for _ in range(TRIES_MAX):
            found = await made_again(self._store, run)
            if found is None:
                return None
            before, snapshot = found
            if (await self._snapshots.save([in_place_of(before, snapshot)]))[0]:
                return snapshot.last_event_seq
        raise StoreUnavailable(f"the snapshot of {run.run_id} is written by others all the time")


async def made_again(store: Store, run: RunRef) -> tuple[Held, RunSnapshot] | None:
    """Return what is stored of *run*, and the snapshot that its journal gives; None if the run is gone.

    The journal is read last, so it is never older than what is stored.
    """
    (held,) = await store.snapshots.load([Asked(run)])
    entries = None if held is None else await store.journal(run)
    if held is None or entries is None:
        return None
    return held, snapshot_of(entries, run.run_id)


def _step_ids(events: Sequence[PublicEvent]) -> set[str]:
    return {event.step_id for event in events if event.step_id is not None}
