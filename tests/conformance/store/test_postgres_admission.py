"""What limits cost on Postgres: nothing where there is none, and nobody waits but whom they concern."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from tests.conformance.store.driving import Run, done, ends, resumes, task, waits
from tidewheel.journal import events as ev
from tidewheel.store.admission import QueueLimit
from tidewheel.store.append import Admit, Fate
from tidewheel.store.postgres.store import PostgresStore

OF_OTHERS = "SELECT 1 FROM tidewheel_admission WHERE queue = 'other' FOR UPDATE"


def a_limit(queue: str, max_running: int) -> QueueLimit:
    """Return a limit of this queue."""
    return QueueLimit(namespace="default", queue=queue, max_running=max_running)


@pytest.fixture
async def store(journals: str) -> AsyncIterator[PostgresStore]:
    """A store that has heard of the database's clock."""
    opened = await PostgresStore.open(journals)
    await Run(opened, "first").start()
    yield opened
    await opened.close()


async def exchanges(store: PostgresStore, run: Run) -> int:
    """Start *run* with its first moves, and return how many exchanges that took."""
    before = store.counters.round_trips
    answer = await run.open(task("0", dispatch="inline"), waits("0"))
    assert answer.fate is Fate.COMMITTED
    return store.counters.round_trips - before


async def test_without_a_limit_a_start_is_one_exchange_and_an_end_another(store: PostgresStore) -> None:
    """Also while other queues have limits, whose rows it neither locks nor waits for."""
    await store.admission.put(a_limit("other", 1))
    run = Run(store, "r")
    before = store.counters.round_trips
    await Run(store, "plain").start()
    started = store.counters.round_trips - before

    opened = await exchanges(store, run)
    before = store.counters.round_trips
    await run.move(resumes("0"), ends(), facts=[done()])

    assert (started, opened, store.counters.round_trips - before) == (1, 1, 1)
    assert (await run.record()).place is None


async def test_a_start_waits_for_no_limit_but_its_own(store: PostgresStore, journals: str) -> None:
    """Somebody who holds the limit of another queue holds up nobody here."""
    await store.admission.put(a_limit("other", 1))
    async with await psycopg.AsyncConnection.connect(journals) as held:
        await held.execute(OF_OTHERS)

        async with asyncio.timeout(5):
            known = await Run(store, "r").start()
            asking = await Run(store, "s").start(idempotency_key="k")
        waiting = asyncio.ensure_future(Run(store, "t").start(queue="other"))
        is_done, _ = await asyncio.wait([waiting], timeout=0.3)
        await held.rollback()

        assert (known.existed, asking.existed, is_done) == (False, False, set())
        assert (await waiting).refused is None


async def test_a_limited_queue_is_asked_about_first_once_that_is_known(store: PostgresStore) -> None:
    """The first start finds out, later ones ask at once; what follows in the run is written as known."""
    await store.admission.put(a_limit("main", 10))
    runs = [Run(store, f"r{number}") for number in range(3)]

    costs = [await exchanges(store, run) for run in runs]
    await runs[0].see()
    before = store.counters.round_trips
    answer = await runs[0].move(resumes("0"), ends(), facts=[done()])

    assert costs == [3, 2, 2]
    assert (answer.fate, store.counters.round_trips - before) == (Fate.COMMITTED, 1)
    assert [end.frees_place for end in answer.ended] == [True]
    assert [load.running for load in await store.admission.loads("default")] == [3]


async def test_a_limit_that_is_gone_costs_no_more(store: PostgresStore) -> None:
    """One start finds that out."""
    await store.admission.put(a_limit("main", 10))
    await exchanges(store, Run(store, "a"))
    await store.admission.remove("default", "main")
    await exchanges(store, Run(store, "b"))

    assert await exchanges(store, Run(store, "c")) == 1


async def test_a_run_that_is_started_with_promises_is_counted_too(store: PostgresStore) -> None:
    """However little plain its row is."""
    await store.admission.put(a_limit("main", 10))
    run = Run(store, "r")

    answer = await run.open(ev.PromiseCreated(promise_id="0", name="p"), waits("0"))

    assert answer.fate is Fate.COMMITTED
    assert (await run.record()).place == "running"


async def test_a_queued_run_that_is_remembered_is_not_admitted_past_the_limit(store: PostgresStore) -> None:
    """A worker has loaded it, found that it has to wait, and is the one that lets queued runs begin."""
    await store.admission.put(a_limit("main", 1))
    queued = Run(store, "r")  # "first" is under way
    await queued.start()
    await queued.see()

    answer = await queued.mark(Admit(queue="main"))

    assert not answer.admitted
    assert (await queued.record()).status == "PENDING"
