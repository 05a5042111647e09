"""Relays on Postgres and RabbitMQ: everything that happened reaches a consumer, in order, whatever dies."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.processes import Service
from tests.scenario.fleet import Fleet
from tests.scenario.listening import Listener
from tests.servers.rabbitmq import PrivateRabbit
from tidewheel import Client
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.journal.public import PublicEvent, published
from tidewheel.store.opening import open_store

APP = """
from tidewheel import App, Context

app = App("orders")


@app.task
async def pick(number: int) -> int:
    return number


@app.workflow
async def order(ctx: Context, number: int) -> int:
    picked = 0
    for place in range(3):
        picked += await ctx.invoke(pick, number)
        await ctx.sleep(0.2)
    return picked
"""
PATIENCE_S = 60.0
RUNS = 40
#: Started, completed, and twice for each of three steps.
EVENTS_OF_A_RUN = 8


@pytest.fixture
def fleet(tmp_path: Path, fresh_postgres: str, own_rabbit: PrivateRabbit) -> Iterator[Fleet]:
    """A database that was migrated, a RabbitMQ that may be killed, a worker and a keeper."""
    made = Fleet(tmp_path, fresh_postgres, own_rabbit.url)
    (tmp_path / "orders.py").write_text(APP)
    assert made.run("db", "migrate").returncode == ExitCode.OK
    made.start("keeper")
    made.start("worker", "orders.py:app")
    yield made
    made.close()


async def _order(fleet: Fleet, first: int, count: int) -> None:
    """Start runs, and wait until they have ended."""
    settings = fleet.settings
    async with await Client.connect(settings["TIDEWHEEL_STORE"], settings["TIDEWHEEL_BROKER"]) as client:
        numbers = range(first, first + count)
        handles = [await client.start("order", number, run_id=f"order-{number}") for number in numbers]
        assert [await handle.result(timeout=PATIENCE_S) for handle in handles] == [
            3 * number for number in numbers
        ]


async def _published(fleet: Fleet) -> dict[str, list[PublicEvent]]:
    """Return what the journals of all runs publish."""
    settings = fleet.settings
    async with await Client.connect(settings["TIDEWHEEL_STORE"], settings["TIDEWHEEL_BROKER"]) as client:
        runs = [record["run_id"] for record in fleet.json_of("run", "list", "--limit", "1000")]
        return {run_id: published(await client.handle(run_id).journal(), run_id) for run_id in runs}


async def _owed(fleet: Fleet) -> int:
    """Return how many rows are to be published."""
    store = await open_store(fleet.settings["TIDEWHEEL_STORE"])
    backlog = await store.outbox.backlog()
    await store.close()
    return backlog.rows


def _until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)


def _check(fleet: Fleet, listener: Listener) -> None:
    """Everything that was published arrives: exactly that, and each run's events in their order."""
    expected = asyncio.run(_published(fleet))
    total = sum(map(len, expected.values()))
    _until(lambda: sum(map(len, listener.events().values())) >= total)
    heard = listener.events()
    assert heard.keys() == expected.keys()
    for run_id, events in expected.items():
        assert heard[run_id] == events, run_id
    _until(lambda: asyncio.run(_owed(fleet)) == 0)


def test_relays_that_are_killed_lose_nothing(fleet: Fleet) -> None:
    """Two share the work; each is killed again and again, and another comes."""
    chance = random.Random(11)
    with Listener(fleet.settings["TIDEWHEEL_BROKER"]) as listener:
        relays = [fleet.start("relay") for _ in range(2)]
        for first in range(0, RUNS, RUNS // 4):
            asyncio.run(_order(fleet, first, RUNS // 4))
            time.sleep(chance.random() * 0.1)
            relays.pop(0).send(signal.SIGKILL)
            relays.append(fleet.start("relay"))
        _check(fleet, listener)


def test_a_relay_that_is_told_to_stop_gives_back_what_it_has(fleet: Fleet) -> None:
    """It ends with 0, and the next one goes on without waiting for its lease."""
    with Listener(fleet.settings["TIDEWHEEL_BROKER"]) as listener:
        relay = fleet.start("relay")
        asyncio.run(_order(fleet, 0, 5))
        relay.send(signal.SIGTERM)
        assert relay.exit_code() == ExitCode.OK
        asyncio.run(_order(fleet, 5, 5))
        began = time.monotonic()
        fleet.start("relay")
        _check(fleet, listener)
        assert time.monotonic() - began < 20


def test_a_broker_that_is_killed_costs_nothing_but_time(fleet: Fleet, own_rabbit: PrivateRabbit) -> None:
    """Runs that are under way go on meanwhile; the backlog drains by itself, in order."""
    with Listener(own_rabbit.url) as listener:
        relay: Service = fleet.start("relay")
        asyncio.run(_order(fleet, 0, 3))
        own_rabbit.settle()
        with ThreadPoolExecutor() as threads:
            ordering = threads.submit(lambda: asyncio.run(_order(fleet, 3, 10)))
            _until(lambda: listener.count > 3 * EVENTS_OF_A_RUN + 20)
            own_rabbit.kill()
            relay.wait_for("the relay waits")
            ordering.result()
        own_rabbit.start()
        relay.wait_for("the relay goes on")
        asyncio.run(_order(fleet, 13, 10))
        _check(fleet, listener)
    assert fleet.json_of("dlq", "list") == []
