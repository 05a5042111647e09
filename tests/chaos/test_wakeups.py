"""Very many wake-ups at once: each is followed, and hints are not repeated in a storm of their own (52)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.chaos.corner import called, nap
from tests.chaos.fleet import Fleet
from tests.chaos.forms import either
from tests.chaos.storm import client_of
from tests.chaos.weather import Cut
from tidewheel.sdk.client import Client
from tidewheel.sdk.handle import Handle

#: Starts at a time.
GROUP = 50
#: How long such a crowd may take.
PATIENCE_S = 600.0
#: How many hints there may be for each run.
HINTS_MAX = 3.0
#: The method Basic.Publish in a frame of AMQP 0-9-1: each message is one.
PUBLISH = Cut(direction="up", pattern=b"\x00\x3c\x00\x28", probability=0.0)


@pytest.fixture
async def client(fleet: Fleet) -> AsyncIterator[Client]:
    """A client that nobody has to tell of ends: what is published are hints."""
    async with client_of(fleet.direct, listening=False) as made:
        yield made


@pytest.mark.timeout(900)
async def test_timers_that_are_due_together_fire_once_each(fleet: Fleet, client: Client) -> None:
    """They came due while nobody was there: two keepers share the work, and each run is hinted at once."""
    count = either(1_000, 10_000)
    worker = await fleet.serve_ready()
    for first in range(0, count, GROUP):
        numbers = range(first, first + GROUP)
        await asyncio.gather(*(client.start(nap, 3600, run_id=f"nap-{number}") for number in numbers))
    await until(fleet, "SELECT count(*) FROM tidewheel_timers", count)
    await fleet.kill(worker)
    fleet.rows("UPDATE tidewheel_timers SET fire_at = 1, due_at = 1")

    await fleet.networks["broker"].cut(PUBLISH)
    for _ in range(2):
        await fleet.serve_ready()
    await until(fleet, "SELECT count(*) FROM tidewheel_runs WHERE ended_at IS NOT NULL", count)
    published = (await fleet.networks["broker"].counts())["seen"]

    assert fleet.events("SELECT count(*) FROM events WHERE type = 'TimerFired'") == [(count,)]
    # One hint for each run that wakes; a few more for those that waited long in the queue.
    assert published < HINTS_MAX * count, published
    early = "timers_are_not_early"  # the test itself let them be due
    assert [breach for breach in fleet.breaches() if not breach.startswith(early)] == []


@pytest.mark.timeout(900)
async def test_signals_to_very_many_runs_are_hinted_at_once_each(fleet: Fleet, client: Client) -> None:
    """They were sent while nobody was there: the runs wake when workers come, and are not told again."""
    count = either(500, 5_000)
    worker = await fleet.serve_ready()
    handles: list[Handle[list[int]]] = []
    for first in range(0, count, GROUP):
        numbers = range(first, first + GROUP)
        handles += await asyncio.gather(*(client.start(called, run_id=f"run-{number}") for number in numbers))
    waiting = "SELECT count(*) FROM tidewheel_runs WHERE phase = 'Blocked' AND wake_at IS NULL"
    await until(fleet, waiting, count)
    await fleet.kill(worker)

    for first in range(0, count, GROUP):
        await asyncio.gather(*(handle.signal("call", None) for handle in handles[first : first + GROUP]))
    await fleet.networks["broker"].cut(PUBLISH)
    for _ in range(2):
        await fleet.serve_ready()
    await until(fleet, "SELECT count(*) FROM tidewheel_runs WHERE ended_at IS NOT NULL", count)
    published = (await fleet.networks["broker"].counts())["seen"]

    # The client has told of each run by another way; what is counted here are the keepers' repetitions.
    assert published < HINTS_MAX * count, published
    assert fleet.breaches() == []


async def until(fleet: Fleet, counting: str, count: int) -> None:
    """Wait until a statement counts so many."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            ((found,),) = await asyncio.to_thread(fleet.rows, counting)
            if found == count:
                return
            await asyncio.sleep(0.1)
