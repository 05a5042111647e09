"""Rebuilding: whatever became of the snapshots, they are again what the journals give."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tests.conformance.store.driving import ends, resumes
from tests.unit.projector.stage import Stage
from tidewheel.journal.jsonform import canonical
from tidewheel.journal.snapshot import empty, to_json
from tidewheel.projector.rebuilding import Rebuilt, rebuild
from tidewheel.store.errors import StoreUnavailable, Unreadable
from tidewheel.store.records import RunRef
from tidewheel.store.snapshots import Asked, Change, Held, going_on, in_place_of


async def damaged(stage: Stage, run: RunRef, **changes: object) -> None:
    """Write something wrong into a snapshot, as if a projector had."""
    (held,) = await stage.store.snapshots.load([Asked(run)])
    assert held is not None
    wrong = in_place_of(held, replace(held.snapshot, **changes))
    assert await stage.store.snapshots.save([wrong]) == [True]


async def test_every_snapshot_is_as_its_journal_gives_it(stage: Stage) -> None:
    """Missing ones are made, wrong ones replaced, right ones left alone; byte by byte."""
    runs = [await stage.live(f"r-{number}", steps=40 * (number % 2)) for number in range(12)]
    await rebuild(stage.store, "default")
    await damaged(stage, runs[1].ref, status="FAILED", steps=())
    await damaged(stage, runs[2].ref, last_event_seq=10_000)
    await damaged(stage, runs[3].ref, last_event_seq=0, stale=True)
    stage.store.snapshots.forget(stage.store.rows.by_ref[runs[4].ref])
    seen: list[int] = []

    found = await rebuild(stage.store, "default", progress=lambda rebuilt: seen.append(rebuilt.runs))

    assert found == Rebuilt(runs=12, level=8, written=4)
    assert seen == [8, 12]
    for run in runs:
        stored = await stage.snapshot(run)
        assert stored is not None
        assert canonical(to_json(stored)) == canonical(to_json(await stage.truth(run)))


async def test_a_dry_run_writes_nothing(stage: Stage) -> None:
    """It counts what would be written."""
    run = await stage.live("r")

    found = await rebuild(stage.store, "default", dry_run=True)

    assert found == Rebuilt(runs=1, written=1, dry_run=True)
    assert await stage.snapshot(run) is None


async def test_one_run_alone_is_rebuilt(stage: Stage) -> None:
    """The others are not looked at; one that is not there is gone."""
    one, other = await stage.live("one"), await stage.live("other")

    assert await rebuild(stage.store, "default", run_id="one") == Rebuilt(runs=1, written=1)
    assert await rebuild(stage.store, "default", run_id="none") == Rebuilt(runs=1, gone=1)

    assert await stage.snapshot(one) == await stage.truth(one)
    assert await stage.snapshot(other) is None


async def test_a_journal_that_cannot_be_read_is_named(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are rebuilt all the same."""
    await stage.live("good")
    await stage.live("bad")
    journal = stage.store.journal

    async def unreadable(run: RunRef) -> object:
        if run.run_id == "bad":
            raise Unreadable("bad", 0, "torn")
        return await journal(run)

    monkeypatch.setattr(stage.store, "journal", unreadable)

    found = await rebuild(stage.store, "default")

    assert found == Rebuilt(runs=2, written=1, unreadable=1, unreadable_runs=["bad"])


async def test_a_projector_that_read_the_wrong_snapshot_does_not_bring_it_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had read it before the rebuild and writes after it, and both have seen the same events."""
    run = await stage.live("r", 2, is_over=False)
    await rebuild(stage.store, "default")
    await damaged(stage, run.ref, failed_steps=99)
    await run.see()
    await run.move(resumes("1"), ends())
    stage.store.rows.outbox.clear()
    load = stage.store.snapshots.load
    is_rebuilt = False

    async def loaded_before(asked: list[Asked]) -> list[Held | None]:
        nonlocal is_rebuilt
        found = await load(asked)
        if not is_rebuilt:
            is_rebuilt = True
            right = (await stage.events(run))[-2].run_seq
            truth = await stage.truth(run)
            (held,) = found
            assert held is not None
            mended = replace(truth, status="RUNNING", last_event_seq=right, completed_at=None)
            mended = replace(mended, total_duration_ms=None)
            assert await stage.store.snapshots.save([in_place_of(held, mended)]) == [True]
        return found

    monkeypatch.setattr(stage.store.snapshots, "load", loaded_before)
    await stage.begin()

    await stage.publish((await stage.events(run))[-1:])

    await stage.becomes_true(run)
    assert is_rebuilt


async def test_a_rebuild_and_a_live_projector_agree(stage: Stage) -> None:
    """Again and again while events come; nobody is alarmed."""
    await stage.begin()
    runs = [await stage.live(f"r-{number}") for number in range(15)]
    streams = [await stage.events(run) for run in runs]

    async def publish() -> None:
        for place in range(len(streams[0])):
            await stage.publish([events[place] for events in streams])
            await asyncio.sleep(0.001)

    publishing = asyncio.create_task(publish())
    while not publishing.done():
        await rebuild(stage.store, "default")
        await asyncio.sleep(0.0005)

    await stage.becomes_true(*runs)
    await stage.is_settled()
    assert stage.alerts == []


async def test_a_snapshot_that_others_write_all_the_time_is_given_up_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is a bound to trying again."""
    await stage.live("r")

    async def lost(changes: list[Change]) -> list[bool]:
        return [False] * len(changes)

    monkeypatch.setattr(stage.store.snapshots, "save", lost)

    with pytest.raises(StoreUnavailable, match="try again"):
        await rebuild(stage.store, "default")


def test_going_on_and_replacing_are_told_apart() -> None:
    """Only what takes the place of another has the next revision."""
    held = Held(key=b"k", run=RunRef("default", "r"), snapshot=empty("r"), revision=4)

    assert going_on(held, held.snapshot).revision == 4
    assert in_place_of(held, held.snapshot).revision == 5
