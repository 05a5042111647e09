"""The relay over the twins: what it tells, in which order, and what it does about refusals."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from tests.conformance.store.driving import Clock, Run, began, done, ends, resumes, task, waits
from tidewheel.broker.alerts import Alert, read_alert
from tidewheel.broker.bus import read_event
from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.memory import MemoryBroker
from tidewheel.broker.message import Publication
from tidewheel.broker.protocol import Untaken
from tidewheel.broker.topology import ALERTS, EVENTS, Binding, Queue, Topology, bus_topology
from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.public import PublicEvent, published
from tidewheel.outbox import edge
from tidewheel.outbox import relay as relay_module
from tidewheel.outbox.config import RelayConfig
from tidewheel.outbox.relay import Relay
from tidewheel.store.memory import MemoryStore
from tidewheel.store.outbox import Claimed, DeadLetterFilter

PATIENCE_S = 10.0
CONFIG = RelayConfig(poll_s=0.01, attempts=3, retry_s=1.0)
ALL = DeadLetterFilter(namespace="default")


class TroubledBroker(MemoryBroker):
    """A broker that refuses what a test tells it to, and remembers what it was offered, wave by wave."""

    def __init__(self) -> None:
        super().__init__()
        self.waves: list[list[str]] = []
        self.refused_runs: set[str] = set()
        self.too_large: set[str] = set()
        self.is_down = False
        self.answers_after_s = 0.0

    async def offer(self, publications: Sequence[Publication]) -> list[Untaken | None]:
        """Take what is not refused."""
        if self.is_down:
            raise BrokerUnavailable("the broker is away")
        if publications[0].exchange == ALERTS:
            return await super().offer(publications)
        subjects = [publication.message.headers["ce-subject"] for publication in publications]
        if self.too_large.intersection(subjects):
            raise InvalidRequest("a message is too large")
        self.waves.append(subjects)
        await asyncio.sleep(self.answers_after_s)
        taken = [one for one, run in zip(publications, subjects, strict=True) if run not in self.refused_runs]
        answers = iter(await super().offer(taken))
        return ["refused" if run in self.refused_runs else next(answers) for run in subjects]


class World:
    """A store whose clock is the test's, a bus with one queue for all events, and a relay."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore(clock=self.clock)
        self.broker = TroubledBroker()
        self.told: list[PublicEvent] = []

    def relay(self, config: RelayConfig = CONFIG) -> Relay:
        """Return a relay."""
        return Relay(self.store, self.broker, config=config)

    async def alerts(self) -> list[Alert]:
        """Return the alerts that came over the bus."""
        async with self.broker.consume("alerts", prefetch=100) as deliveries:
            return [
                read_alert((await anext(aiter(deliveries))).message)
                for _ in range(await self.broker.depth("alerts"))
            ]

    async def bind(self) -> None:
        """Make a queue that takes everything."""
        await self.broker.declare(bus_topology())
        bindings = (Binding(EVENTS, "all", "#"), Binding(ALERTS, "alerts", "#"))
        queues = (Queue(name="all"), Queue(name="alerts"))
        await self.broker.declare(Topology(queues=queues, bindings=bindings))

    async def live(self, run_id: str) -> Run:
        """Let a run live from its start to its end."""
        run = Run(self.store, run_id)
        await run.start(run_id)
        await run.move(task("0"), waits("0"))
        await run.tell(began("0"))
        await run.see()
        await run.move(resumes("0"), ends(), facts=[done("0")])
        self.clock.advance(0.001)
        return run

    async def heard(self) -> list[PublicEvent]:
        """Return what came over the bus so far."""
        async with self.broker.consume("all", prefetch=10_000) as deliveries:
            for _ in range(await self.broker.depth("all")):
                delivery = await anext(aiter(deliveries))
                self.told.append(read_event(delivery.message)[1])
                await delivery.acknowledge()
        return self.told

    async def of(self, run: Run) -> list[PublicEvent]:
        """Return what came over the bus of one run."""
        return [event for event in await self.heard() if event.run_id == run.ref.run_id]


@pytest.fixture
async def world() -> World:
    """A world whose bus has a queue."""
    world = World()
    await world.bind()
    return world


@contextlib.asynccontextmanager
async def relaying(world: World, config: RelayConfig = CONFIG) -> AsyncIterator[Relay]:
    """Run a relay while the block lasts."""
    relay = world.relay(config)
    await relay.start()
    try:
        yield relay
    finally:
        await relay.stop()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until *condition*, which may be asked often, is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.002)


async def drained(world: World) -> None:
    """Wait until nothing is owed but dead letters, and what waits behind them."""

    async def is_drained() -> bool:
        dead = {letter.place.run_key for letter in await world.store.outbox.dead_letters(ALL)}
        return all(key in dead or not rows for key, rows in world.store.rows.outbox.items())

    await until(is_drained)


async def test_every_public_event_is_told_once_and_in_order(world: World) -> None:
    """What came is what the journals publish, and nothing is owed any more."""
    runs = [await world.live(f"run-{number}") for number in range(20)]

    async with relaying(world) as relay:
        await drained(world)

    for run in runs:
        assert await world.of(run) == published(await run.journal(), run.ref.run_id)
    assert relay.counts.told == len(world.told)
    assert relay.counts.unwanted == 0


async def test_what_happens_meanwhile_is_told_too(world: World) -> None:
    """A relay that has nothing to do looks again."""
    async with relaying(world):
        await asyncio.sleep(0.02)
        run = await world.live("late")
        await drained(world)

    assert await world.of(run) == published(await run.journal(), "late")


async def test_a_wave_has_one_event_of_a_run(world: World) -> None:
    """The next is offered when the bus has taken the one before: so order survives a refusal."""
    await world.live("a")
    await world.live("b")

    async with relaying(world):
        await drained(world)

    assert all(len(set(wave)) == len(wave) for wave in world.broker.waves)


async def test_a_refusal_holds_back_its_own_run_alone(world: World) -> None:
    """The others are told; the run in trouble is tried again after a pause, from where it was."""
    good, bad = await world.live("good"), await world.live("bad")
    world.broker.refused_runs = {"bad"}

    async with relaying(world) as relay:

        async def has_failed() -> bool:
            return relay.counts.refused == 1 and await world.of(good) != []

        await until(has_failed)
        await asyncio.sleep(0.05)
        assert relay.counts.refused == 1, "it is not tried again at once"
        world.broker.refused_runs = set()
        world.clock.advance(1.0)
        await drained(world)

    for run in (good, bad):
        assert await world.of(run) == published(await run.journal(), run.ref.run_id)
    assert await world.alerts() == []


async def test_after_so_many_refusals_it_is_a_dead_letter(world: World) -> None:
    """It says how often and why, somebody is told, and it is tried no more until it is redriven."""
    run = await world.live("bad")
    world.broker.refused_runs = {"bad"}
    async with relaying(world) as relay:
        for failures in (1, 2, 3):

            async def has_failed(failures: int = failures) -> bool:
                return relay.counts.refused == failures

            await until(has_failed)
            world.clock.advance(1_000)
        await asyncio.sleep(0.05)
        assert relay.counts.refused == 3
        (dead,) = await world.store.outbox.dead_letters(ALL)
        assert (dead.run, dead.attempts) == (run.ref, 3)
        assert "bad" not in dead.last_error
        assert "a queue refuses" in dead.last_error
        (alert,) = await world.alerts()
        assert (alert.alert, alert.severity, alert.run_id) == ("OUTBOX_DEAD_LETTER", "P1", "bad")
        assert (alert.details["id"], alert.details["attempts"]) == ("bad@0", 3)

        world.broker.refused_runs = set()
        assert await world.store.outbox.redrive([dead.place]) == 1
        await drained(world)

    assert await world.of(run) == published(await run.journal(), "bad")


async def test_a_message_that_no_broker_takes_is_a_dead_letter_at_once(world: World) -> None:
    """Trying again cannot help; those that were offered with it are told."""
    good, bad = await world.live("good"), await world.live("bad")
    world.broker.too_large = {"bad"}

    async with relaying(world):
        await drained(world)

    (dead,) = await world.store.outbox.dead_letters(ALL)
    assert (dead.run, dead.attempts, dead.last_error) == (bad.ref, 1, "a message is too large")
    assert await world.of(good) == published(await good.journal(), "good")


async def test_a_journal_that_cannot_be_read_is_a_dead_letter_at_once(world: World) -> None:
    """Its run alone is concerned."""
    good, bad = await world.live("good"), await world.live("bad")
    rows = world.store.rows
    journal = rows.journals[rows.by_ref[bad.ref]]
    journal[0] = type(journal[0])(0, journal[0].last_seq, journal[0].at, b"damaged", journal[0].public)

    async with relaying(world):
        await drained(world)

    (dead,) = await world.store.outbox.dead_letters(ALL)
    assert dead.run == bad.ref
    assert await world.of(good) == published(await good.journal(), "good")


async def test_what_stands_before_a_damaged_row_is_told_and_the_letter_names_the_damaged_one(
    world: World,
) -> None:
    """A row is read while the one before it is still being told: that one is not to blame."""
    world.broker.answers_after_s = 0.01
    run = Run(world.store, "bad")
    await run.start("bad")
    await run.move(task("0"), task("1"), waits("0", "1"))
    await run.tell(began("0"), began("1"))  # two events in one row
    await run.see()
    await run.move(resumes("0", "1"), ends(), facts=[done("0"), done("1")])
    rows = world.store.rows
    journal = rows.journals[rows.by_ref[run.ref]]
    last = rows.outbox[rows.by_ref[run.ref]][-1].first_seq
    (place,) = [number for number, row in enumerate(journal) if row.first_seq == last]
    kept = journal[place]
    whole = published(await run.journal(), "bad")
    journal[place] = type(kept)(kept.first_seq, kept.last_seq, kept.at, b"damaged", kept.public)

    async with relaying(world):
        await drained(world)

    (dead,) = await world.store.outbox.dead_letters(ALL)
    assert (dead.run, dead.place.first_seq, dead.attempts) == (run.ref, last, 1)
    assert await world.of(run) == [event for event in whole if event.run_seq < last]


async def test_while_the_bus_is_away_nothing_counts_as_a_failure(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was in hand is given back; when the bus is there again everything is told, in order."""
    monkeypatch.setattr(relay_module, "AWAY_MAX_S", 0.02)
    monkeypatch.setattr(relay_module, "AWAY_S", 0.01)
    world.broker.is_down = True
    run = await world.live("r")

    async with relaying(world) as relay:

        async def is_away() -> bool:
            return await relay.well() is not None

        await until(is_away)
        await asyncio.sleep(0.2)
        assert world.store.rows.outbox[world.store.rows.by_ref[run.ref]][0].attempts == 0
        world.broker.is_down = False
        await drained(world)
        assert await relay.well() is None

    assert await world.of(run) == published(await run.journal(), "r")


async def test_events_that_nobody_wants_are_done_with() -> None:
    """Without a queue they are told to nobody, and nothing piles up."""
    world = World()
    await world.live("r")

    async with relaying(world) as relay:
        await drained(world)

    assert relay.counts.unwanted == relay.counts.told == 4


async def test_events_without_a_queue_wait_if_asked_to() -> None:
    """Where a queue is expected, its absence is a refusal: nothing is lost until it is there."""
    world = World()
    run = await world.live("r")
    config = RelayConfig(poll_s=0.01, retry_s=1.0, needs_queue=True)

    async with relaying(world, config) as relay:

        async def has_failed() -> bool:
            return relay.counts.refused > 0

        await until(has_failed)
        await world.bind()
        world.clock.advance(1_000)
        await drained(world)

    assert await world.of(run) == published(await run.journal(), "r")


async def test_a_relay_that_stops_gives_back_what_is_in_hand(world: World) -> None:
    """Another goes on at once, without waiting for a lease."""
    gate = asyncio.Event()
    offer = world.broker.offer

    async def held(publications: Sequence[Publication]) -> list[Untaken | None]:
        await gate.wait()
        return await offer(publications)

    world.broker.offer = held  # type: ignore[method-assign]  # the broker hangs
    run = await world.live("r")
    relay = world.relay()
    await relay.start()
    await asyncio.sleep(0.05)
    stopping = asyncio.create_task(relay.stop())
    await asyncio.sleep(0.01)
    gate.set()
    await stopping

    async with relaying(world):
        await drained(world)

    told = await world.of(run)
    assert list(dict.fromkeys(event.id for event in told)) == [
        event.id for event in published(await run.journal(), "r")
    ]


async def test_two_relays_share_the_work(world: World) -> None:
    """Nothing is told twice while both live."""
    runs = [await world.live(f"run-{number}") for number in range(30)]
    config = RelayConfig(poll_s=0.01, batch=3)

    async with relaying(world, config), relaying(world, config):
        await drained(world)

    for run in runs:
        assert await world.of(run) == published(await run.journal(), run.ref.run_id)


async def test_what_takes_long_keeps_its_lease(world: World) -> None:
    """A run that published very much at once is not taken over in the middle."""
    renewed: list[dt.datetime] = []
    renew = world.store.outbox.renew

    async def note(relay: str, run_keys: Sequence[bytes], lease_s: float) -> None:
        renewed.append(world.clock.now)
        await renew(relay, run_keys, lease_s)

    world.store.outbox.renew = note  # type: ignore[method-assign]  # looked at
    offer = world.broker.offer

    async def slow(publications: Sequence[Publication]) -> list[Untaken | None]:
        await asyncio.sleep(0.2)
        return await offer(publications)

    world.broker.offer = slow  # type: ignore[method-assign]  # the broker is slow
    await world.live("r")

    async with relaying(world, RelayConfig(poll_s=0.01, lease_s=1.0)):
        await drained(world)

    assert renewed


async def test_an_old_run_that_goes_on_is_found_although_most_passes_begin_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key is lower than all that was claimed lately: the next whole pass finds it."""
    monkeypatch.setattr(edge, "WHOLE_S", 0.05)
    begins: list[bytes] = []
    claim = world.store.outbox.claim

    async def note(relay: str, *, after: bytes, limit: int, lease_s: float) -> Claimed:
        begins.append(after)
        return await claim(relay, after=after, limit=limit, lease_s=lease_s)

    world.store.outbox.claim = note  # type: ignore[method-assign]  # looked at
    old = Run(world.store, "old")
    await old.start("old")
    await old.move(task("0"), waits("0"))
    world.clock.advance(1.0)

    async with relaying(world):
        await drained(world)
        for number in range(2 * edge.REMEMBERED):
            await world.live(f"new-{number}")
            await drained(world)
            await asyncio.sleep(edge.WHOLE_S)
        begins.clear()
        await old.tell(began("0"))
        await old.see()
        await old.move(resumes("0"), ends(), facts=[done("0")])
        await drained(world)
        await asyncio.sleep(4 * edge.WHOLE_S)

    whole = [after for after in begins if after == b""]
    assert await world.of(old) == published(await old.journal(), old.ref.run_id)
    assert 0 < len(whole) < len(begins) / 2
