"""Whatever the bus does to the events of any runs, their snapshots end up as the journals give them.

Events are repeated, dropped, and delivered in any order that a bus with crashes and several consumers can
give; a projector may crash between storing and acknowledging. What follows is checked without a clock: the
rules of ``folding`` over the memory store, and healing from the journal where something never comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.store.driving import Run
from tests.property.test_public_fold import JOURNALS
from tests.property.test_snapshot_fold import public
from tidewheel.journal import events as ev
from tidewheel.journal.public import PublicEvent
from tidewheel.journal.snapshot import RunSnapshot, empty, snapshot_of
from tidewheel.projector.folding import folded
from tidewheel.projector.snapshot_sink import SnapshotSink
from tidewheel.store.memory import MemoryStore
from tidewheel.store.records import RunRef
from tidewheel.store.snapshots import Asked, Held, going_on


def deliveries(data: st.DataObject, events: Sequence[PublicEvent]) -> list[list[PublicEvent]]:
    """Draw what arrives of *events*: some lost, some twice, in some order, in batches."""
    places = data.draw(st.lists(st.integers(0, max(len(events) - 1, 0)), max_size=3 * len(events) + 1))
    arriving = [events[place] for place in places] if events else []
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=len(arriving), max_size=len(arriving)))
    batches, begin = [], 0
    for size in sizes:
        if begin < len(arriving):
            batches.append(arriving[begin : begin + size])
            begin += size
    return batches


@given(JOURNALS, st.data())
def test_what_is_followed_is_always_a_prefix_of_the_truth(
    entries: list[ev.Entry], data: st.DataObject
) -> None:
    """No order, repetition or loss makes a snapshot that the run never had."""
    events = public(entries)
    truths = {-1: empty("r")}
    for place in range(len(events)):
        truths[events[place].run_seq] = folded(empty("r"), events[: place + 1])[0]
    snapshot: RunSnapshot = empty("r")
    waiting: list[PublicEvent] = []

    for batch in deliveries(data, events):
        snapshot, followed = folded(snapshot, [*waiting, *batch])
        waiting = [event for event in (*waiting, *batch) if event.run_seq > followed.seq]

        assert snapshot == truths[snapshot.last_event_seq]
        assert followed.broken is None


@given(JOURNALS, st.data())
def test_what_was_only_reordered_and_repeated_arrives_whole(
    entries: list[ev.Entry], data: st.DataObject
) -> None:
    """Nothing has to be healed where nothing was lost: who comes early waits."""
    events = public(entries)
    order = data.draw(st.permutations([*events, *events]))
    snapshot, waiting = empty("r"), []

    for event in order:
        waiting.append(event)
        snapshot, followed = folded(snapshot, waiting)
        waiting = [one for one in waiting if one.run_seq > followed.seq]

    assert waiting == []
    assert snapshot == snapshot_of(entries, "r")


class Journaled(MemoryStore):
    """A store whose run has the journal that a test drew, whatever the ledger would say to it."""

    def __init__(self, entries: list[ev.Entry]) -> None:
        super().__init__(seed=1)
        self.entries = entries

    async def journal(self, run: RunRef, *, after: int = -1) -> list[ev.Entry] | None:  # noqa: ARG002 - there is one
        """Read the drawn journal."""
        return [entry for entry in self.entries if entry.run_seq > after]


@settings(deadline=None)
@given(JOURNALS, st.data())
def test_with_losses_crashes_and_rivals_it_is_healed_to_the_truth(
    entries: list[ev.Entry], data: st.DataObject
) -> None:
    """Two projectors take batches in turns, one may have read before the other wrote; then the look comes."""

    async def story() -> RunSnapshot | None:
        store = Journaled(entries)
        run = Run(store, "r")
        await run.start()
        sinks = [SnapshotSink(store), SnapshotSink(store)]
        stale: Held | None = None
        for batch in deliveries(data, public(entries)):
            sink = sinks[data.draw(st.integers(0, 1))]
            match data.draw(st.sampled_from(["take", "twice", "read", "late write", "heal"])):
                case "take":
                    await sink.take({run.ref: batch})
                case "twice":  # it died between storing and acknowledging
                    await sink.take({run.ref: batch})
                    await sink.take({run.ref: batch})
                case "read":
                    (stale,) = await store.snapshots.load([Asked(run.ref)])
                case "late write" if stale is not None:
                    snapshot, _ = folded(stale.snapshot, batch)
                    await store.snapshots.save([going_on(stale, snapshot)])
                case _:
                    await sink.heal(run.ref)
        await sinks[0].halt(run.ref)
        await sinks[0].heal(run.ref)
        return await store.snapshots.read(run.ref)

    assert asyncio.run(story()) == snapshot_of(entries, "r")
