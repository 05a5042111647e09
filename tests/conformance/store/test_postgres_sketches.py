"""A hint for a start carries the run: whoever follows it need not load it, and nothing can go wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.conformance.store.driving import Run, a_start, signal, task, waits
from tidewheel.journal import events as ev
from tidewheel.store.append import Append, Fate
from tidewheel.store.postgres.config import PostgresConfig
from tidewheel.store.postgres.sketches import SKETCH_MAX
from tidewheel.store.postgres.store import PostgresStore
from tidewheel.store.records import RunRef


@pytest.fixture
async def stores(journals: str) -> AsyncIterator[list[PostgresStore]]:
    """A client's store and a worker's, both of which have heard of the database's clock."""
    opened = [await PostgresStore.open(journals) for _ in range(2)]
    for number, store in enumerate(opened):
        await Run(store, f"first-{number}").start()
    yield opened
    for store in opened:
        await store.close()


async def started(store: PostgresStore, run_id: str, *given: object) -> bytes | None:
    """Start a run and return the sketch of it."""
    (answer,) = await store.append([Append(run=RunRef("default", run_id), start=a_start(*given))])
    (hint,) = answer.hints
    return hint.sketch


async def test_what_a_hint_carries_is_what_loading_finds(stores: list[PostgresStore]) -> None:
    """The row and the journal, whatever is in them."""
    client, worker = stores
    sketch = await started(client, "r", {"text": "\x00\U0001f30a", "number": 1e16})

    assert sketch is not None
    sketched = worker.sketched(sketch)
    loaded = await worker.load(RunRef("default", "r"))

    assert sketched is not None
    assert loaded is not None
    assert sketched.run == loaded.run
    assert [entry.event for entry in sketched.entries] == [entry.event for entry in loaded.entries]
    assert (sketched.steps, sketched.timers) == (loaded.steps, loaded.timers) == ([], [])


async def test_a_worker_goes_on_from_it_with_one_exchange(stores: list[PostgresStore]) -> None:
    """Nothing is read."""
    client, worker = stores
    sketch = await started(client, "r")
    assert sketch is not None
    run = Run(worker, "r")
    before = worker.counters.round_trips

    sketched = worker.sketched(sketch)
    assert sketched is not None
    run.seen, run.token = sketched.run.last_seq, sketched.run.token
    answer = await run.move(task("0"), waits("0"))

    assert answer.fate is Fate.COMMITTED
    assert worker.counters.round_trips - before == 1


async def test_a_sketch_that_is_old_is_noticed(stores: list[PostgresStore]) -> None:
    """What came in between is seen, or the moves are not taken."""
    client, worker = stores
    sketch = await started(client, "r")
    assert sketch is not None
    await Run(client, "r").tell(signal())
    run, slow = Run(worker, "r"), Run(worker, "r")
    for one in (run, slow):
        sketched = worker.sketched(sketch)
        assert sketched is not None
        one.seen, one.token = sketched.run.last_seq, sketched.run.token

    answer = await run.move(task("0"), waits("0"))
    worker.sketched(sketch)
    late = await slow.move(task("0"), waits("0"))

    assert answer.fate is Fate.COMMITTED
    assert [type(entry.event) for entry in answer.landed] == [ev.SignalDelivered]
    assert late.fate is Fate.STALE
    assert (await run.story()).count("InvokeScheduled") == 1


async def test_a_large_input_is_not_carried(stores: list[PostgresStore]) -> None:
    """A message is no place for it."""
    assert await started(stores[0], "r", "x" * SKETCH_MAX) is None


async def test_who_finds_the_run_there_gets_no_sketch(stores: list[PostgresStore]) -> None:
    """It may be anywhere by now."""
    await started(stores[0], "r")

    assert await started(stores[1], "r") is None


@pytest.mark.parametrize("sketch", [b"", b"[]", b'[{"run_id":"r"},[]]', b'[{},[{"type":"Later"}]]', b"\xff"])
async def test_what_cannot_be_read_is_loaded(stores: list[PostgresStore], sketch: bytes) -> None:
    """As one of another release, whose runs have other fields."""
    assert stores[1].sketched(sketch) is None


async def test_a_store_that_remembers_nothing_has_no_use_for_it(
    journals: str, stores: list[PostgresStore]
) -> None:
    """Every append asks first there."""
    sketch = await started(stores[0], "r")
    store = await PostgresStore.open(journals, config=PostgresConfig(remembered_max=0))

    assert sketch is not None
    assert store.sketched(sketch) is None
    await store.close()
