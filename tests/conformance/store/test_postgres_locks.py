"""Locks of the Postgres store: who waits for whom, how long, and that nobody waits in a circle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.conformance.store.driving import Run, a_start, began, done, ends, resumes, signal, task, waits
from tidewheel.store.append import Append, Cancelled, ChildStart, Fate, Verdict
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.store.postgres.config import PostgresConfig
from tidewheel.store.postgres.store import PostgresStore
from tidewheel.store.records import RunRef
from tidewheel.workers.clock import StoreClock
from tidewheel.workers.writer import Writer

#: Short, so that what must give up does so soon.
CONFIG = PostgresConfig(lock_timeout_s=0.3)
PATIENCE_S = 20


@pytest.fixture
async def stores(journals: str) -> AsyncIterator[list[PostgresStore]]:
    """Three stores on one database, as three processes have them."""
    opened = [await PostgresStore.open(journals, config=CONFIG) for _ in range(3)]
    yield opened
    for store in opened:
        await store.close()


@contextmanager
def held(url: str, statement: str, *values: Any) -> Iterator[None]:
    """Hold what *statement* locks, as a person with an open transaction does."""
    with psycopg.connect(url) as connection:
        connection.execute(statement.encode(), values)
        yield
        connection.rollback()


def held_run(url: str, run_id: str) -> Any:
    """Hold the row of a run."""
    return held(url, "SELECT 1 FROM tidewheel_runs WHERE run_id = %s FOR UPDATE", run_id)


async def test_a_run_that_is_held_does_not_hold_up_its_group(
    stores: list[PostgresStore], journals: str
) -> None:
    """The others are answered at once; the one that is held is told after a bounded wait, and works later.

    In a batch of one caller others were written, so it is not said that nothing was: it is to be repeated.
    """
    store = stores[0]
    runs = [Run(store, name) for name in ("a", "held", "b")]
    for run in runs:
        await run.start()
    batch = [Append(run=run.ref, facts=(signal("1"),)) for run in runs]

    with held_run(journals, "held"):
        others = await asyncio.gather(store.append(batch[:1]), store.append(batch[2:]))
        with pytest.raises(StoreUnavailable, match="waited too long for a lock"):
            await asyncio.wait_for(store.append(batch[1:2]), PATIENCE_S)
        with pytest.raises(CommitUnknown, match=r"of 3 appends 2 were written .*waited too long for a lock"):
            await asyncio.wait_for(store.append(batch), PATIENCE_S)
    (after,) = await store.append(batch[1:2])

    assert [answer.verdicts for (answer,) in others] == [[Verdict.WRITTEN], [Verdict.WRITTEN]]
    assert after.verdicts == [Verdict.WRITTEN]


async def test_a_batch_of_held_runs_writes_nothing_after_it_has_failed(
    stores: list[PostgresStore], journals: str
) -> None:
    """Each run of a batch waits for its own lock; the caller is told when the last one is done waiting."""
    store = stores[0]
    runs = [Run(store, name) for name in ("first", "second")]
    for run in runs:
        await run.start()

    with held_run(journals, "first"):
        with held_run(journals, "second"):
            appending = asyncio.create_task(
                store.append([Append(run=run.ref, facts=(signal("1"),)) for run in runs])
            )
            await asyncio.wait([appending], timeout=0.1)
        with pytest.raises((CommitUnknown, StoreUnavailable)) as told:
            await asyncio.wait_for(appending, PATIENCE_S)
        lengths = [len(await run.journal()) for run in runs]

    assert (told.type is CommitUnknown) == (lengths != [1, 1])


async def test_a_held_run_does_not_fail_the_others_of_its_worker(
    stores: list[PostgresStore], journals: str
) -> None:
    """A worker writes for many runs at once; each hears of its own, as of a step that it may execute."""
    writer = Writer(stores[0], StoreClock())
    runs = [Run(stores[0], name) for name in ("free", "held")]
    for run in runs:
        await run.start()
        await run.move(task("0", dispatch="queued"), waits("0"))
    claims = [Append(run=run.ref, facts=(began("0"),)) for run in runs]

    with held_run(journals, "held"):
        free, held_up = [asyncio.create_task(writer.append(claim)) for claim in claims]
        claimed = await asyncio.wait_for(free, PATIENCE_S)
        assert not held_up.done()
    later = await asyncio.wait_for(held_up, PATIENCE_S)
    await writer.idle()

    assert claimed.verdicts == later.verdicts == [Verdict.WRITTEN]


async def test_appends_of_a_held_run_keep_their_order(stores: list[PostgresStore], journals: str) -> None:
    """Those that come while the first one waits queue up behind it."""
    store = stores[0]
    run = Run(store, "r")
    await run.start()

    with held_run(journals, "r"):
        waiting = [asyncio.create_task(store.append([Append(run=run.ref, facts=(signal("0"),))]))]
        for number in range(1, 5):
            await asyncio.sleep(0.02)
            waiting.append(
                asyncio.create_task(store.append([Append(run=run.ref, facts=(signal(str(number)),))]))
            )
    await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S)

    sequences = [task.result()[0].last_seq for task in waiting]
    assert sequences == sorted(sequences)
    assert len(await run.journal()) == 6


async def test_batches_in_opposite_order_do_not_wait_in_a_circle(stores: list[PostgresStore]) -> None:
    """The same runs, from several stores, in either order, many times: nothing surfaces, nothing is lost."""
    names = [f"r{number}" for number in range(20)]
    await stores[0].append([Append(run=RunRef("default", name), start=a_start()) for name in names])

    async def tell(store: PostgresStore, part: int) -> None:
        for turn in range(10):
            order = names if (turn + part) % 2 else names[::-1]
            facts = [signal(f"{part}-{turn}")]
            await store.append([Append(run=RunRef("default", name), facts=tuple(facts)) for name in order])

    await asyncio.wait_for(asyncio.gather(*(tell(store, part) for part, store in enumerate(stores))), 60)

    for name in names:
        entries = await stores[0].journal(RunRef("default", name))
        assert entries is not None
        assert [entry.run_seq for entry in entries] == list(range(1 + 3 * 10))


async def test_equal_starts_from_several_clients_are_one_run_each(stores: list[PostgresStore]) -> None:
    """Two hundred new names, in opposite orders, some of them only by the same key."""
    starts = [
        Append(
            run=RunRef("default", f"r{number}"),
            start=a_start(idempotency_key=f"k{number}" if number % 2 else None),
        )
        for number in range(200)
    ]

    answers = await asyncio.wait_for(
        asyncio.gather(stores[0].append(starts), stores[1].append(starts[::-1]), stores[2].append(starts)), 60
    )

    new = [answer.run.run_id for part in answers for answer in part if not answer.existed]
    assert sorted(new) == sorted(append.run.run_id for append in starts)


async def test_one_key_for_two_names_is_one_run(stores: list[PostgresStore]) -> None:
    """Whoever comes second gets the run of the first, whatever it calls its own."""
    answers = await asyncio.gather(
        *(
            store.append([Append(run=RunRef("default", f"r{part}"), start=a_start(idempotency_key="once"))])
            for part, store in enumerate(stores)
        )
    )

    assert sum(not answer.existed for (answer,) in answers) == 1
    assert len({answer.run for (answer,) in answers}) == 1


async def test_results_of_one_run_that_come_at_once_are_all_written(stores: list[PostgresStore]) -> None:
    """Fifty of them from three stores: no number is given twice, and the run is woken."""
    run = Run(stores[0], "r")
    await run.start()
    paths = [str(number) for number in range(50)]
    await run.move(*[task(path, dispatch="queued") for path in paths], waits(*paths))

    answers = await asyncio.gather(
        *(
            stores[number % 3].append([Append(run=run.ref, facts=(done(path, overdue=True),))])
            for number, path in enumerate(paths)
        )
    )

    entries = await run.journal()
    assert [answer.verdicts for (answer,) in answers] == [[Verdict.WRITTEN]] * 50
    assert [entry.run_seq for entry in entries] == list(range(len(entries)))
    assert (await run.record()).wake_at is not None


async def test_ends_and_cancels_of_a_family_do_not_wait_in_a_circle(stores: list[PostgresStore]) -> None:
    """Children end while their parent gives up on them: each locks the other's run, in one order."""
    for turn in range(5):
        parent = Run(stores[0], f"p{turn}")
        await parent.start()
        paths = [str(number) for number in range(6)]
        children = {path: ChildStart(workflow="w", version="", digest="") for path in paths}
        await parent.move(*[task(path, kind="workflow") for path in paths], waits(*paths), children=children)
        young = [Run(stores[number % 3], f"p{turn}:{path}") for number, path in enumerate(paths)]
        for child in young:
            await child.see()
        await parent.tell(Cancelled())
        await parent.see()

        *fates, ended = await asyncio.wait_for(
            asyncio.gather(*(child.move(ends()) for child in young), parent.move(resumes("cancel"), ends())),
            60,
        )

        assert ended.fate is Fate.COMMITTED
        assert {answer.fate for answer in fates} <= {Fate.COMMITTED, Fate.STALE, Fate.ENDED}


async def test_a_table_that_a_person_has_locked_is_waited_for_a_bounded_time(
    stores: list[PostgresStore], journals: str
) -> None:
    """Then the caller is told who is in the way, and it works again when the person is gone."""
    run = Run(stores[0], "r")
    await run.start()

    with held(journals, "LOCK TABLE tidewheel_journal IN ACCESS EXCLUSIVE MODE"):
        with pytest.raises(StoreUnavailable, match="pg_stat_activity"):
            await asyncio.wait_for(run.tell(signal("1")), PATIENCE_S)
        with pytest.raises(StoreUnavailable, match="pg_stat_activity"):
            await asyncio.wait_for(stores[0].load(run.ref), PATIENCE_S)
    answer = await run.tell(signal("1"))

    assert answer.verdicts == [Verdict.WRITTEN]


async def test_a_claim_does_not_wait_for_an_append(stores: list[PostgresStore], journals: str) -> None:
    """What somebody is writing to is left for the next time; the rest is claimed."""
    keeper = await PostgresStore.open(journals, clock=lambda: 4_000_000_000.0)
    for name in ("held", "free"):
        await Run(stores[0], name).start()

    with held_run(journals, "held"):
        first = await keeper.claim_due(limit=10)
    second = await keeper.claim_due(limit=10)

    assert [hint.run.run_id for hint in first.hints] == ["free"]
    assert [hint.run.run_id for hint in second.hints] == ["held"]
    await keeper.close()


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_the_isolation_that_a_database_was_set_to_does_not_matter(
    journals: str, isolation: str
) -> None:
    """Every statement sees what is there once its locks are held; starts and facts may collide."""
    with psycopg.connect(journals, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(
            f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'".encode()
        )
    stores = [await PostgresStore.open(journals) for _ in range(3)]
    refs = [RunRef("default", f"r{number}") for number in range(10)]

    for ref in refs:
        await asyncio.gather(*(store.append([Append(run=ref, start=a_start())]) for store in stores))
        await asyncio.gather(
            *(
                store.append([Append(run=ref, facts=(signal(f"{part}-{number}"),))])
                for part, store in enumerate(stores)
                for number in range(3)
            )
        )

    lengths = [len(await stores[0].journal(ref) or ()) for ref in refs]
    assert lengths == [1 + 3 * 3] * len(refs)
    for store in stores:
        await store.close()


async def test_how_a_database_shows_bytes_does_not_matter(journals: str) -> None:
    """Keys and tokens travel in JSON, as hexadecimal digits."""
    with psycopg.connect(journals, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET bytea_output = 'escape'".encode())
    store = await PostgresStore.open(journals)
    run = Run(store, "r")
    await run.start()

    moved = await run.move(task("0"), waits("0"))
    told = await run.tell(done("0"))

    assert moved.fate is Fate.COMMITTED
    assert told.verdicts == [Verdict.WRITTEN]
    await store.close()
