"""What the event bus is owed: claimed by one relay at a time, in each run's order, until it was told."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from tests.conformance.store.driving import Clock, Run, began, done, ends, resumes, task, waits
from tests.conformance.store.inside import Inside
from tidewheel.journal.public import PublicEvent, published
from tidewheel.store.errors import Unreadable
from tidewheel.store.outbox import ROWS_MAX, Claimed, DeadLetterFilter, Outbox, Owed, Place, Trouble
from tidewheel.store.owed_events import events_of
from tidewheel.store.protocol import Store

LEASE_S = 30.0
SOON = dt.timedelta(seconds=5)
ALL = DeadLetterFilter(namespace="default")


@pytest.fixture
def outbox(store: Store) -> Outbox:
    """What is owed by the store under test."""
    return store.outbox


async def claim(outbox: Outbox, relay: str = "relay-1", *, after: bytes = b"", limit: int = 100) -> Claimed:
    """Claim as a relay does."""
    return await outbox.claim(relay, after=after, limit=limit, lease_s=LEASE_S)


def names(claimed: Claimed) -> list[str]:
    """Return whose rows were claimed, in their order."""
    return [owed.run.run_id for owed in claimed.owed]


def places(owed: Owed) -> list[Place]:
    """Return where all rows are."""
    return [owed.place(row) for row in owed.rows]


async def told(outbox: Outbox, claimed: Claimed) -> list[PublicEvent]:
    """Return the events of all rows that were claimed."""
    found: list[PublicEvent] = []
    for events in await events_of(outbox, [(owed, row) for owed in claimed.owed for row in owed.rows]):
        assert not isinstance(events, Unreadable)
        found += events
    return found


async def started(store: Store, clock: Clock, *run_ids: str) -> list[Run]:
    """Start runs, one after the other."""
    runs = [Run(store, run_id) for run_id in run_ids]
    for run in runs:
        await run.start(run.ref.run_id)
        clock.advance(1)  # keys sort by the time
    return runs


async def live(run: Run) -> None:
    """Let a run execute a step and end, in appends of their own."""
    await run.move(task("0"), waits("0"))
    await run.tell(began("0"))
    await run.see()
    await run.move(resumes("0"), ends(), facts=[done("0")])


async def test_what_is_claimed_publishes_what_the_journal_publishes(
    store: Store, outbox: Outbox, clock: Clock
) -> None:
    """Each row is read by itself, and all together give the events of the whole journal."""
    (run,) = await started(store, clock, "r")
    await live(run)

    claimed = await claim(outbox)

    assert names(claimed) == ["r"]
    (owed,) = claimed.owed
    assert (owed.workflow, owed.attempts) == ("shop", 0)
    assert all(row.size > 0 for row in owed.rows)
    assert await told(outbox, claimed) == published(await run.journal(), "r")


async def test_what_was_sent_is_owed_no_more(store: Store, outbox: Outbox, clock: Clock) -> None:
    """The rows go, and others come when there is more to tell."""
    (run,) = await started(store, clock, "r")
    (owed,) = (await claim(outbox)).owed

    await outbox.sent(places(owed))

    assert (await claim(outbox)).owed == []
    assert (await outbox.backlog()).rows == 0
    await live(run)
    assert names(await claim(outbox)) == ["r"]


async def test_a_claim_is_a_lease(store: Store, outbox: Outbox, clock: Clock) -> None:
    """Others find nothing until it ends; whoever renews it keeps it, and no other relay can."""
    await started(store, clock, "r")
    (owed,) = (await claim(outbox, "relay-1")).owed

    assert (await claim(outbox, "relay-2")).owed == []
    clock.advance(LEASE_S - 1)
    await outbox.renew("relay-2", [owed.run_key], LEASE_S)
    await outbox.renew("relay-1", [owed.run_key], LEASE_S)
    clock.advance(LEASE_S - 1)
    assert (await claim(outbox, "relay-2")).owed == []
    clock.advance(2)
    assert names(await claim(outbox, "relay-2")) == ["r"]


async def test_what_is_given_back_can_be_claimed_at_once(store: Store, outbox: Outbox, clock: Clock) -> None:
    """A relay that stops lets others go on; it cannot give back what is another's."""
    await started(store, clock, "r")
    (owed,) = (await claim(outbox, "relay-1")).owed

    await outbox.release("relay-2", [owed.run_key])
    assert (await claim(outbox, "relay-2")).owed == []
    await outbox.release("relay-1", [owed.run_key])

    assert names(await claim(outbox, "relay-2")) == ["r"]


async def test_rows_above_a_claimed_one_are_nobodys(store: Store, outbox: Outbox, clock: Clock) -> None:
    """What a run publishes meanwhile waits behind: only the lowest row can be claimed."""
    (run,) = await started(store, clock, "r")
    (owed,) = (await claim(outbox, "relay-1")).owed
    await live(run)

    assert (await claim(outbox, "relay-2")).owed == []
    await outbox.sent(places(owed))
    (rest,) = (await claim(outbox, "relay-2")).owed

    assert rest.rows[0].first_seq > owed.rows[-1].last_seq


async def test_claims_go_through_the_runs_and_say_where_to_go_on(
    store: Store, outbox: Outbox, clock: Clock
) -> None:
    """A round ends where the last run was looked at, and the next begins anew."""
    await started(store, clock, "a", "b", "c", "d", "e")

    first = await claim(outbox, limit=2)
    second = await claim(outbox, after=first.after, limit=2)
    third = await claim(outbox, after=second.after, limit=2)

    assert [names(part) for part in (first, second, third)] == [["a", "b"], ["c", "d"], ["e"]]
    assert first.after == first.owed[-1].run_key
    assert third.after == b""


async def test_a_run_that_waits_is_passed_by(store: Store, outbox: Outbox, clock: Clock) -> None:
    """A row that is not due, or is somebody's, holds back its own run and no other."""
    await started(store, clock, "a", "b", "c")
    first, second, _ = (await claim(outbox)).owed
    trouble = Trouble(place=places(first)[0], error="full", retry_after=SOON)
    await outbox.failed([trouble])
    await outbox.release("relay-1", [second.run_key])

    assert names(await claim(outbox)) == ["b"]
    clock.advance(SOON.total_seconds())
    (again,) = (await claim(outbox)).owed

    assert (again.run.run_id, again.attempts) == ("a", 1)


async def test_rows_are_claimed_up_to_a_bound(store: Store, outbox: Outbox, clock: Clock) -> None:
    """A run that has published very much is told part by part."""
    (run,) = await started(store, clock, "r")
    await run.move(task("0"), waits("0"))
    for number in range(ROWS_MAX):
        path, next_path = str(number), str(number + 1)
        await run.move(resumes(path), task(next_path), waits(next_path), facts=[done(path)])
    events: list[PublicEvent] = []
    parts = 0
    while (claimed := await claim(outbox)).owed:
        events += await told(outbox, claimed)
        (owed,) = claimed.owed
        await outbox.sent(places(owed))
        parts += 1

    assert parts == 2
    assert events == published(await run.journal(), "r")


async def test_a_dead_letter_waits_for_a_person(store: Store, outbox: Outbox, clock: Clock) -> None:
    """It is not tried again, whatever time passes, and says why; what is behind it waits too."""
    (run, other) = await started(store, clock, "r", "other")
    owed, _ = (await claim(outbox)).owed
    await outbox.failed([Trouble(place=places(owed)[0], error="first", retry_after=SOON)])
    clock.advance(SOON.total_seconds())
    await claim(outbox)
    await outbox.failed([Trouble(place=places(owed)[0], error="last\0", retry_after=None)])
    await live(run)
    clock.advance(1_000_000)

    assert names(await claim(outbox)) == [other.ref.run_id]
    (dead,) = await outbox.dead_letters(ALL)
    assert (dead.place, dead.run, dead.workflow) == (places(owed)[0], run.ref, "shop")
    assert (dead.attempts, dead.first_error) == (2, "first")
    assert dead.last_error.startswith("last")
    assert dead.created_at < dead.dead_at
    assert dead.waiting >= 2
    assert (await outbox.backlog()).dead == 1


async def test_a_dead_letter_that_is_redriven_is_tried_as_if_new(
    store: Store, outbox: Outbox, clock: Clock
) -> None:
    """It comes first, and what was behind it after."""
    (run,) = await started(store, clock, "r")
    (owed,) = (await claim(outbox)).owed
    await outbox.failed([Trouble(place=places(owed)[0], error="broken", retry_after=None)])
    await live(run)

    assert await outbox.redrive(places(owed)) == 1
    assert await outbox.redrive(places(owed)) == 0

    claimed = await claim(outbox)
    assert claimed.owed[0].attempts == 0
    assert await told(outbox, claimed) == published(await run.journal(), "r")
    assert await outbox.dead_letters(ALL) == []


async def test_a_dead_letter_that_is_discarded_lets_its_run_go_on(
    store: Store, outbox: Outbox, clock: Clock
) -> None:
    """Its events are lost to the bus; ``prev_seq`` of the next shows that."""
    (run,) = await started(store, clock, "r")
    (owed,) = (await claim(outbox)).owed
    await live(run)
    assert await outbox.discard(places(owed)) == 0, "only what is dead"
    await outbox.failed([Trouble(place=places(owed)[0], error="broken", retry_after=None)])

    assert await outbox.discard(places(owed)) == 1

    events = await told(outbox, await claim(outbox))
    assert events == published(await run.journal(), "r")[1:]
    assert events[0].prev_seq == 0


async def test_what_is_behind_a_dead_letter_is_not_claimed_with_what_is_before(
    store: Store, outbox: Outbox, clock: Clock
) -> None:
    """A relay that could not say what it had sent leaves such rows: the order is kept all the same."""
    (run,) = await started(store, clock, "r")
    await live(run)
    (owed,) = (await claim(outbox)).owed
    lowest, second, *_ = places(owed)
    await outbox.failed([Trouble(place=second, error="broken", retry_after=None)])
    await outbox.release("relay-1", [owed.run_key])

    (again,) = (await claim(outbox)).owed

    assert places(again) == [lowest]


async def test_dead_letters_are_found_by_what_they_are_of(store: Store, outbox: Outbox, clock: Clock) -> None:
    """By namespace, run and workflow, a page at a time."""
    await started(store, clock, "a", "b", "c")
    elsewhere = Run(store, "a", "elsewhere")
    await elsewhere.start(workflow="mail")
    for owed in (await claim(outbox)).owed:
        await outbox.failed([Trouble(place=places(owed)[0], error="broken", retry_after=None)])

    async def found(which: DeadLetterFilter) -> list[str]:
        return [dead.run.run_id for dead in await outbox.dead_letters(which)]

    assert await found(ALL) == ["a", "b", "c"]
    assert await found(DeadLetterFilter(namespace="default", run_id="b")) == ["b"]
    assert await found(DeadLetterFilter(namespace="default", workflow="mail")) == []
    assert await found(DeadLetterFilter(namespace="elsewhere", workflow="mail")) == ["a"]
    page = await outbox.dead_letters(DeadLetterFilter(namespace="default", limit=2))
    assert [dead.run.run_id for dead in page] == ["a", "b"]
    assert await found(DeadLetterFilter(namespace="default", after=page[-1].place)) == ["c"]


async def test_a_row_that_cannot_be_read_concerns_its_run_alone(inside: Inside, clock: Clock) -> None:
    """The others of the same question are answered."""
    outbox = inside.store.outbox
    good, bad = await started(inside.store, clock, "good", "bad")
    inside.replace_passage(bad.ref, 0, data=b"damaged")

    claimed = await claim(outbox)
    of_good, of_bad = await events_of(outbox, [(owed, row) for owed in claimed.owed for row in owed.rows])

    assert of_good == published(await good.journal(), "good")
    assert isinstance(of_bad, Unreadable)


async def test_relays_that_race_share_what_is_owed(store: Store, outbox: Outbox, clock: Clock) -> None:
    """Nobody gets what another got, and nothing is left over."""
    await started(store, clock, *(f"r{number}" for number in range(20)))

    shares = await asyncio.gather(*(claim(outbox, f"relay-{number}", limit=7) for number in range(5)))
    rest = await claim(outbox, "late")

    found = [name for share in (*shares, rest) for name in names(share)]
    assert sorted(found) == sorted(f"r{number}" for number in range(20))


async def test_a_backlog_says_how_much_and_since_when(store: Store, outbox: Outbox, clock: Clock) -> None:
    """So that somebody can be told before it is too late."""
    assert (await outbox.backlog()).oldest_at is None
    began = clock.now
    await started(store, clock, "a", "b")

    backlog = await outbox.backlog()

    assert (backlog.rows, backlog.dead, backlog.oldest_at, backlog.now) == (2, 0, began, clock.now)
