"""Transactions that want the same runs wait for each other in one order, or try again by themselves (33)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.chaos.fleet import Fleet
from tests.chaos.forms import either
from tidewheel.store.append import Append, Appended, Signalled, Start, Verdict
from tidewheel.store.opening import open_store
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef

RUNS = 20


@pytest.fixture
async def stores(fleet: Fleet) -> AsyncIterator[list[Store]]:
    """Two stores over the same database, as two processes have them."""
    async with AsyncExitStack() as opened:
        found = []
        for _ in range(2):
            store = await open_store(fleet.direct[0])
            opened.push_async_callback(store.close)
            found.append(store)
        yield found


def start(number: int) -> Append:
    """The start of a run."""
    begin = Start(workflow="called", queue="default", input=[])
    return Append(run=RunRef("default", f"run-{number}"), start=begin)


def signal(number: int, key: str) -> Append:
    """A signal to a run."""
    fact = Signalled(name="call", payload=key, key=key)
    return Append(run=RunRef("default", f"run-{number}"), facts=(fact,))


async def test_batches_with_the_same_runs_in_opposite_order(fleet: Fleet, stores: list[Store]) -> None:
    """Whoever comes first, both are written, all of both, and nobody hears of a deadlock."""
    rounds = either(50, 500)
    await stores[0].append([start(number) for number in range(RUNS)])

    async def write(store: Store, writer: int) -> None:
        order = list(range(RUNS))[:: 1 if writer else -1]
        for round_ in range(rounds):
            answers = await store.append([signal(number, f"{writer}-{round_}") for number in order])
            assert [answer.verdicts for answer in answers] == [[Verdict.WRITTEN]] * RUNS

    await asyncio.gather(*(write(store, writer) for writer, store in enumerate(stores)))

    written = fleet.events("SELECT count(*) FROM events WHERE type = 'SignalDelivered'")
    assert written == [(2 * RUNS * rounds,)]
    assert _deadlocks(fleet) == 0
    assert [breach for breach in fleet.breaches() if not breach.startswith("every_run_has_ended")] == []


async def test_new_runs_with_equal_ids_from_two_clients(fleet: Fleet, stores: list[Store]) -> None:
    """200 of them in opposite order: each is started once, and one of the two is told that it was there."""
    count = 200

    async def write(store: Store, order: list[int]) -> dict[str, Appended]:
        answers: dict[str, Appended] = {}
        for begin in range(0, count, RUNS):
            group = [start(number) for number in order[begin : begin + RUNS]]
            answers |= {answer.run.run_id: answer for answer in await store.append(group)}
        return answers

    numbers = list(range(count))
    first, second = await asyncio.gather(write(stores[0], numbers), write(stores[1], numbers[::-1]))

    assert first.keys() == second.keys()
    assert [run for run in first if first[run].existed == second[run].existed] == []
    assert not any(answer.mismatch for answer in (*first.values(), *second.values()))
    assert fleet.rows("SELECT count(*), max(last_seq) FROM tidewheel_runs") == [(count, 0)]
    assert _deadlocks(fleet) == 0


def _deadlocks(fleet: Fleet) -> int:
    """Return how many circles of waiting Postgres had to break."""
    ((count,),) = fleet.rows("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    return int(count)
