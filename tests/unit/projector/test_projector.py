"""The projector: whatever the bus does, snapshots end up as the journals have it, and people are told."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tests.unit.projector.stage import Stage, renamed, without
from tidewheel.broker.message import REASON
from tidewheel.broker.topology import SHARDS, projector_dead_letters, projector_queue
from tidewheel.journal.snapshot import reduce
from tidewheel.store.errors import StoreUnavailable, Unreadable
from tidewheel.store.snapshots import Asked, Change, Held, going_on

GAP, LAG = "PROJECTOR_GAP_DETECTED", "PROJECTOR_LAG_HIGH"


async def test_snapshots_follow_what_is_published(stage: Stage) -> None:
    """Many runs, their events mixed; nothing is left in a queue, and nobody is alarmed."""
    projector = await stage.begin()
    runs = [await stage.live(f"r-{number}") for number in range(20)]
    streams = [await stage.events(run) for run in runs]
    count = sum(map(len, streams))

    for round_ in range(max(map(len, streams))):
        await stage.publish(events[round_] for events in streams if round_ < len(events))

    await stage.becomes_true(*runs)
    await stage.is_settled()
    assert (projector.pipeline.taken, projector.pipeline.repeated) == (count, 0)
    assert stage.alerts == []


async def test_what_was_seen_already_is_passed_over(stage: Stage) -> None:
    """Deliveries repeat, alone and as a whole stretch, also of a run that has ended."""
    run = await stage.live("r")
    events = await stage.events(run)
    projector = await stage.begin()

    await stage.publish([*events[:3], events[1], *events, *events[::-1], *events])

    await stage.becomes_true(run)
    await stage.is_settled()
    assert projector.pipeline.taken == len(events)
    assert projector.pipeline.repeated == 4 + 2 * len(events)
    assert stage.alerts == []


async def test_an_unknown_type_moves_the_watermark(stage: Stage) -> None:
    """An event of a later release changes nothing else, and what follows it is no gap."""
    run = await stage.live("r")
    events = await stage.events(run)
    await stage.begin()

    await stage.publish([*events[:2], renamed(events[2], "StepTeleported"), *events[3:-1]])
    await stage.is_settled()

    snapshot = await stage.snapshot(run)
    assert snapshot is not None
    assert snapshot.last_event_seq == events[-2].run_seq
    assert stage.alerts == []


async def test_an_event_that_is_a_little_early_waits_for_the_one_before(stage: Stage) -> None:
    """As when two projectors have the same shard for a moment: that is no gap, and is not told of."""
    run = await stage.live("r")
    events = await stage.events(run)
    await stage.begin(patience_s=1.0)

    await stage.publish([events[0], *events[2:]])
    await asyncio.sleep(0.5)
    before = await stage.snapshot(run)
    await stage.publish([events[1]])

    await stage.becomes_true(run)
    assert before is not None
    assert before.last_event_seq == events[0].run_seq
    await stage.is_settled()
    assert stage.alerts == []


async def test_a_gap_halts_its_run_alone_and_is_closed_from_the_journal(stage: Stage) -> None:
    """It reads stale and people are told; the missing event is fetched, within a second."""
    broken, whole = await stage.live("broken"), await stage.live("whole")
    seen: list[tuple[bool, int]] = []
    save = stage.store.snapshots.save

    async def watched(changes: list[Change]) -> list[bool]:
        seen.extend(
            (one.snapshot.stale, one.snapshot.last_event_seq)
            for one in changes
            if one.before.run == broken.ref
        )
        return await save(changes)

    stage.store.snapshots.save = watched  # type: ignore[method-assign,assignment]  # to see what is written
    events = await stage.events(broken)
    projector = await stage.begin()
    began = asyncio.get_running_loop().time()

    await stage.publish([*without(events, 2), *await stage.events(whole)])

    await stage.becomes_true(whole)
    assert asyncio.get_running_loop().time() - began < 0.1
    await stage.becomes_true(broken)
    assert asyncio.get_running_loop().time() - began < 1.0
    assert seen == [
        (False, events[1].run_seq),
        (True, events[1].run_seq),
        (False, events[-1].run_seq),
    ]
    (alert,) = stage.alerts
    assert (alert["name"], alert["severity"], alert["run_id"]) == (GAP, "P1", "broken")
    assert alert["details"]["prev_seq"] == events[2].run_seq
    assert "tidewheel projector rebuild" in alert["action"]
    await stage.is_settled()
    assert projector.pipeline.gaps == 1


async def test_a_run_goes_on_after_its_gap(stage: Stage) -> None:
    """What is published later follows what was read from the journal; what was missing is old by then."""
    run = await stage.live("r", 2, is_over=False)
    events = await stage.events(run)
    projector = await stage.begin()
    await stage.publish(without(events, 1))
    await stage.becomes_true(run)
    await run.see()
    longer = await stage.live("other")

    await stage.publish([events[1], *await stage.events(longer)])

    await stage.becomes_true(run, longer)
    await stage.is_settled()
    assert stage.alert_names == [GAP]
    assert projector.pipeline.repeated >= 1


async def test_the_last_events_of_a_run_that_never_came_are_found(stage: Stage) -> None:
    """Nothing follows them that could tell: the look does, and people hear of it once."""
    runs = [await stage.live(f"r-{number}") for number in range(5)]
    untouched = await stage.live("untouched")
    await stage.begin(look_s=1.0, quiet_s=5.0)

    for run in runs:
        await stage.publish(without(await stage.events(run), -1)[:-2])

    await stage.becomes_true(*runs, untouched)
    (alert,) = stage.alerts
    assert (alert["name"], alert["details"]["count"]) == (GAP, 5)


async def test_events_that_only_wait_are_not_taken_for_lost(stage: Stage) -> None:
    """While a queue has a backlog nothing is read from a journal."""
    run = await stage.live("r")
    projector = await stage.begin(look_s=1.0, quiet_s=1.0)
    await stage.publish((await stage.events(run))[:1])
    await stage.is_settled()
    looker = projector._looker
    await projector.stop()
    await stage.publish((await stage.events(run))[1:])
    await asyncio.sleep(10)

    assert not await looker.look()
    assert looker.healed == 0
    assert stage.alerts == []


async def test_a_lag_is_told_of_once(stage: Stage) -> None:
    """Events that happened longer ago than five seconds; again only after a minute."""
    first, second, third = [await stage.live(name) for name in ("first", "second", "third")]
    await asyncio.sleep(6)
    await stage.begin(look_s=1000.0)

    await stage.publish(await stage.events(first))
    await stage.becomes_true(first)
    await stage.publish(await stage.events(second))
    await stage.becomes_true(second)
    told = list(stage.alerts)
    await asyncio.sleep(61)
    await stage.publish(await stage.events(third))
    await stage.becomes_true(third)

    assert [(alert["name"], alert["severity"]) for alert in told] == [(LAG, "P2")]
    assert told[0]["details"]["lag_s"] > 5
    assert stage.alert_names == [LAG, LAG]


@pytest.mark.parametrize(
    ("body", "headers", "reason"),
    [
        (b"{", {"ce-source": "/tidewheel/default"}, "not a public event"),
        (b"{}", {}, "not a message of ours"),
        (b"{}", {"ce-source": "/tidewheel/other"}, "not a public event"),
    ],
)
async def test_what_nobody_can_read_is_a_dead_letter_and_blocks_nobody(
    stage: Stage, body: bytes, headers: dict[str, str], reason: str
) -> None:
    """With its reason; the events around it are projected."""
    run = await stage.live("r")
    events = await stage.events(run)
    await stage.begin()

    await stage.publish(events[:2])
    await stage.publish_raw(body, headers)
    await stage.publish(events[2:])

    await stage.becomes_true(run)
    await stage.is_settled()
    async with stage.broker.consume(projector_dead_letters("default"), prefetch=1) as dead:
        assert reason in (await anext(dead)).message.headers[REASON]


@pytest.mark.parametrize(
    "changes",
    [
        {"run_id": "no such id!"},
        {"run_seq": 2**63},
        {"run_seq": -5},
        {"prev_seq": 10_000},
        {"workflow": "a\0b"},
        {"step_id": "a\0b"},
    ],
)
async def test_an_event_that_cannot_be_is_a_dead_letter(stage: Stage, changes: dict[str, object]) -> None:
    """Whatever somebody published by hand, no store is asked to take it."""
    run = await stage.live("r")
    (first, *rest) = await stage.events(run)
    await stage.begin()

    await stage.publish([replace(first, **changes), first, *rest])

    await stage.becomes_true(run)
    await stage.is_settled()
    assert await stage.dead_letters() == 1


async def test_an_event_whose_content_makes_no_sense_is_read_from_the_journal(stage: Stage) -> None:
    """It is a dead letter; its run is as the journal has it, and goes on."""
    run = await stage.live("r")
    events = await stage.events(run)
    await stage.begin()
    nonsense = replace(renamed(events[2], "StepFailed"), data=None)

    await stage.publish([*events[:2], nonsense, *events[3:]])

    await stage.becomes_true(run)
    await stage.is_settled()
    assert await stage.dead_letters() == 1
    assert stage.alerts == []


async def test_events_of_a_run_that_is_gone_are_let_go_of(stage: Stage) -> None:
    """It was retired, or its namespace is another store's: there is nothing to keep."""
    run, other = await stage.live("gone"), await stage.live("here")
    events = await stage.events(run)
    stage.store.rows.forget(stage.store.rows.by_ref[run.ref])
    await stage.begin()

    await stage.publish([*events, *await stage.events(other)])

    await stage.becomes_true(other)
    await stage.is_settled()
    assert await stage.dead_letters() == 0
    assert stage.alerts == []


async def test_a_run_whose_journal_cannot_be_read_stays_stale_and_holds_up_nobody(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages are let go of, and once its journal can be read the look puts it right."""
    broken, whole = await stage.live("broken"), await stage.live("whole")
    journal = stage.store.journal

    async def unreadable(run: object, **options: int) -> object:
        if run == broken.ref:
            raise Unreadable("broken", 3, "the checksum does not fit")
        return await journal(run, **options)  # type: ignore[arg-type]  # as it was asked

    events = await stage.events(broken)
    whole_events = await stage.events(whole)
    monkeypatch.setattr(stage.store, "journal", unreadable)
    await stage.begin(quiet_s=20.0)

    await stage.publish([*without(events, 1), *whole_events])
    await stage.is_settled()

    stale = await stage.snapshot(broken)
    assert stale is not None
    assert (stale.stale, stale.last_event_seq) == (True, events[0].run_seq)
    monkeypatch.undo()
    await stage.becomes_true(broken, whole)


async def test_nothing_is_acknowledged_while_the_store_is_away(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was delivered is projected when it is back."""
    run = await stage.live("r")
    await stage.begin()

    async def away(_: object) -> list[bool]:
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr(stage.store.snapshots, "save", away)
    await stage.publish(await stage.events(run))
    await asyncio.sleep(5)
    in_hand = stage.projectors[0]._inbox._unsettled.total()
    monkeypatch.undo()

    await stage.becomes_true(run)
    await stage.is_settled()
    assert in_hand == len(await stage.events(run))
    assert await stage.dead_letters() == 0


async def test_one_run_that_no_store_takes_does_not_hold_up_the_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever went wrong with it: its events are dead letters."""
    bad, good = await stage.live("bad"), await stage.live("good")
    save = stage.store.snapshots.save

    async def picky(changes: list[Change]) -> list[bool]:
        assert all(change.before.run != bad.ref for change in changes), "not this one"
        return await save(changes)

    monkeypatch.setattr(stage.store.snapshots, "save", picky)
    await stage.begin(quiet_s=1000.0)
    events = await stage.events(bad)

    await stage.publish([*events, *await stage.events(good)])

    await stage.becomes_true(good)
    await stage.is_settled()
    assert await stage.dead_letters() == len(events)


async def test_a_snapshot_that_somebody_else_wrote_is_gone_on_from(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between reading it and writing it; both have seen the same events, so it does not matter who wins."""
    run = await stage.live("r")
    events = await stage.events(run)
    load = stage.store.snapshots.load
    is_rivalled = True

    async def raced(asked: list[Asked]) -> list[Held | None]:
        nonlocal is_rivalled
        found = await load(asked)
        if is_rivalled:
            is_rivalled = False
            (held,) = found
            assert held is not None
            rival = going_on(held, reduce(held.snapshot, events[0]))
            assert await stage.store.snapshots.save([rival]) == [True]
        return found

    monkeypatch.setattr(stage.store.snapshots, "load", raced)
    projector = await stage.begin()

    await stage.publish(events)
    await stage.becomes_true(run)
    await stage.is_settled()

    assert not is_rivalled
    assert (projector.pipeline.taken, projector.pipeline.repeated) == (len(events) - 1, 1)


async def test_several_projectors_share_the_work(stage: Stage) -> None:
    """Each has some of the shards and none has another's."""
    projectors = [await stage.begin() for _ in range(3)]
    await asyncio.sleep(10)
    runs = [await stage.live(f"r-{number}") for number in range(40)]

    for run in runs:
        await stage.publish(await stage.events(run))

    await stage.becomes_true(*runs)
    await stage.is_settled()
    shares = [projector.shards for projector in projectors]
    assert sorted(shard for share in shares for shard in share) == list(range(SHARDS))
    assert all(projector.pipeline.taken for projector in projectors)
    assert stage.alerts == []


async def test_the_share_of_one_that_stops_is_taken_over_at_once(stage: Stage) -> None:
    """It says that it leaves; what it had in hand is stored or given back."""
    first, second = await stage.begin(), await stage.begin()
    await asyncio.sleep(10)
    runs = [await stage.live(f"r-{number}") for number in range(20)]
    for run in runs:
        await stage.publish(await stage.events(run))

    await first.stop()
    await asyncio.sleep(2)

    assert second.shards == frozenset(range(SHARDS))
    await stage.becomes_true(*runs)
    assert await stage.dead_letters() == 0


async def test_the_share_of_one_that_dies_is_taken_over(stage: Stage) -> None:
    """Its connection is gone and it says nothing any more; what it had not acknowledged comes again."""
    first, second = await stage.begin(), await stage.begin()
    await asyncio.sleep(10)
    for task in first._tasks:
        task.cancel()
    await first._broker.close()
    runs = [await stage.live(f"r-{number}") for number in range(20)]
    for run in runs:
        await stage.publish(await stage.events(run))

    await asyncio.sleep(10)

    assert second.shards == frozenset(range(SHARDS))
    await stage.becomes_true(*runs)


async def test_a_deleted_queue_is_declared_again_and_what_it_had_is_found(stage: Stage) -> None:
    """The events that were lost with it are read from the journals."""
    await stage.begin(look_s=5.0, quiet_s=5.0)
    run = await stage.live("r")
    events = await stage.events(run)
    await stage.publish(events[:2])
    await stage.is_settled()
    for shard in range(SHARDS):
        await stage.broker.delete_queue(projector_queue("default", shard))
    await asyncio.sleep(10)

    await stage.publish(events[3:])

    await stage.becomes_true(run)


async def test_a_single_queue_will_do_where_queues_are_dear(stage: Stage) -> None:
    """One process has all of it, and the next one waits for its turn."""
    first, second = await stage.begin(shards=1), await stage.begin(shards=1)
    run = await stage.live("r")
    await stage.publish(await stage.events(run))

    await stage.becomes_true(run)
    await asyncio.sleep(10)
    assert {first.shards, second.shards} == {frozenset({0}), frozenset()}


async def test_it_says_whether_it_hears(stage: Stage) -> None:
    """A projector that cannot consume, or cannot say that it is alive, is not ready."""
    projector = await stage.begin()
    await asyncio.sleep(1)
    well = await projector.hears()
    await projector._broker.close()
    await asyncio.sleep(1)
    deaf = await projector.hears()
    projector._attended_at = None

    assert well is None
    assert deaf is not None
    assert "tidewheel.projector.0" in deaf
    assert await projector.hears() == "it could not tell the store that it is alive"
    await projector.stop()
    await projector.stop()
