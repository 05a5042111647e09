"""Partitions of the journal: made ahead, dropped when all in them is old."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator

import psycopg
import pytest

from tests.conformance.store.driving import NOW, Clock, Run, ends, resumes, signal, task, waits
from tidewheel.store.append import Cancelled, ChildStart
from tidewheel.store.postgres.config import PostgresConfig
from tidewheel.store.postgres.store import PostgresStore

#: Whether somebody waits for a lock, and how often to look.
LOOKS_MAX = 2_000
WAITING = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
WEEK = dt.timedelta(days=7)
CONFIG = PostgresConfig(partition_days=7, partitions_ahead=2)


@pytest.fixture
async def store(journals: str, clock: Clock) -> AsyncIterator[PostgresStore]:
    """A store whose partitions begin with the test's clock; those of the real time are dropped."""
    with psycopg.connect(journals, autocommit=True) as connection:
        for (name,) in connection.execute("SELECT partition::text FROM tidewheel_partitions_v2()").fetchall():
            connection.execute(f"DROP TABLE {name}".encode())
    opened = await PostgresStore.open(journals, clock=clock, config=CONFIG)
    yield opened
    await opened.close()


def partitions(url: str) -> list[str]:
    """Return the names of the partitions, oldest first."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT partition::text FROM tidewheel_partitions_v2()").fetchall()
        return [name for (name,) in rows]


def rows_in(url: str, table: str) -> int:
    """Count the rows of one partition."""
    with psycopg.connect(url) as connection:
        row = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()  # noqa: S608 - our own names
        assert row is not None
        return int(row[0])


async def somebody_waits(url: str) -> None:
    """Return when somebody waits for a lock."""
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(LOOKS_MAX):
            if connection.execute(WAITING).fetchone() is not None:
                return
            await asyncio.sleep(0.01)
    pytest.fail("nobody waited")


async def test_partitions_are_made_ahead(store: PostgresStore, journals: str, clock: Clock) -> None:
    """One for now, two for the weeks to come; later only what is missing."""
    await store.tend("default", ended_before=None)
    first = partitions(journals)
    await store.tend("default", ended_before=None)
    again = partitions(journals)
    clock.advance(WEEK.total_seconds())
    await store.tend("default", ended_before=None)

    assert first == ["tidewheel_journal_20260226", "tidewheel_journal_20260305", "tidewheel_journal_20260312"]
    assert again == first
    assert partitions(journals) == [*first, "tidewheel_journal_20260319"]


async def test_a_run_is_written_to_the_partition_of_its_start(
    store: PostgresStore, journals: str, clock: Clock
) -> None:
    """Its later events too: what belongs to a run sits together."""
    await store.tend("default", ended_before=None)
    run = Run(store, "r")
    await run.start()
    clock.advance(WEEK.total_seconds())

    await run.move(task("0"), waits("0"))

    assert rows_in(journals, "tidewheel_journal_20260226") == 2
    assert rows_in(journals, "tidewheel_journal") == 2


async def test_without_a_partition_nothing_is_refused(store: PostgresStore, journals: str) -> None:
    """What comes before its partition was made goes to the rest, stays there, and holds up nothing."""
    await Run(store, "early").start()

    await store.tend("default", ended_before=None)
    await Run(store, "late").start()

    assert partitions(journals) == ["tidewheel_journal_20260305", "tidewheel_journal_20260312"]
    assert rows_in(journals, "tidewheel_journal_rest") == 2


async def test_a_partition_whose_runs_have_all_ended_is_dropped(
    store: PostgresStore, journals: str, clock: Clock
) -> None:
    """With all that belongs to its runs; a younger one is left alone."""
    await store.tend("default", ended_before=None)
    for name in ("a", "b"):
        run = Run(store, name)
        await run.start(idempotency_key=name)
        await run.move(ends())
    clock.advance(2 * WEEK.total_seconds())
    await Run(store, "young").start()

    retired = await store.tend("default", ended_before=clock.now - dt.timedelta(days=1))

    assert retired == 2
    assert "tidewheel_journal_20260226" not in partitions(journals)
    assert [rows_in(journals, f"tidewheel_{table}") for table in ("runs", "journal", "outbox")] == [1, 1, 1]


async def test_a_partition_is_kept_while_a_run_in_it_is_needed(
    store: PostgresStore, journals: str, clock: Clock
) -> None:
    """One that is open, ended lately, or is of another namespace keeps all of it."""
    await store.tend("default", ended_before=None)
    still_open, other = Run(store, "open"), Run(store, "other", namespace="blue")
    await still_open.start()
    await other.start()
    await other.move(ends())
    clock.advance(2 * WEEK.total_seconds())

    kept_for_open = await store.tend("blue", ended_before=clock.now)
    await still_open.move(ends())
    kept_for_other = await store.tend("default", ended_before=clock.now + WEEK)
    kept_for_late = await store.tend("default", ended_before=clock.now)

    assert (kept_for_open, kept_for_other, kept_for_late) == (0, 0, 0)
    assert "tidewheel_journal_20260226" in partitions(journals)


async def test_a_parent_stays_as_long_as_its_children(
    store: PostgresStore, journals: str, clock: Clock
) -> None:
    """A child that began in a later partition keeps the one of its parent."""
    await store.tend("default", ended_before=None)
    parent = Run(store, "p")
    await parent.start()
    clock.advance(WEEK.total_seconds())
    child = ChildStart(workflow="w", version="", digest="")
    await parent.move(task("0", kind="workflow"), waits("0"), children={"0": child})
    await parent.tell(Cancelled())
    await parent.see()
    await parent.move(resumes("cancel"), ends())
    clock.advance(WEEK.total_seconds())

    retired = await store.tend("default", ended_before=clock.now)

    assert retired == 0
    assert "tidewheel_journal_20260226" in partitions(journals)


async def test_another_width_goes_on_where_the_last_partition_ends(
    store: PostgresStore, journals: str, clock: Clock
) -> None:
    """Changing the setting leaves neither a hole nor an overlap."""
    await store.tend("default", ended_before=None)
    daily = await PostgresStore.open(
        journals, clock=clock, config=PostgresConfig(partition_days=1, partitions_ahead=20)
    )

    await daily.tend("default", ended_before=None)

    with psycopg.connect(journals) as connection:
        bounds = connection.execute("SELECT begins_ms, ends_ms FROM tidewheel_partitions_v2()").fetchall()
    assert [begins for begins, _ in bounds[1:]] == [ends for _, ends in bounds[:-1]]
    assert bounds[-1][0] / 1000 > (NOW + dt.timedelta(days=19)).timestamp()
    await daily.close()


async def test_a_clock_that_was_far_ahead_for_a_while_keeps_no_partition_from_being_made(
    store: PostgresStore, journals: str, clock: Clock
) -> None:
    """Those of the real time are made all the same, and those far ahead are used when their time comes."""
    clock.advance(100 * WEEK.total_seconds())
    await store.tend("default", ended_before=None)
    ahead = partitions(journals)
    clock.now = NOW

    await store.tend("default", ended_before=None)
    await Run(store, "r").start()
    clock.advance(98 * WEEK.total_seconds())
    await store.tend("default", ended_before=None)

    assert rows_in(journals, "tidewheel_journal_20260226") == 1
    assert rows_in(journals, "tidewheel_journal_rest") == 0
    assert set(ahead) < set(partitions(journals))


async def test_retiring_does_not_stop_the_journal_while_runs_are_deleted(
    store: PostgresStore, journals: str, clock: Clock
) -> None:
    """The journal's table is locked to drop a partition, and for nothing that may take its time."""
    await store.tend("default", ended_before=None)
    old = Run(store, "old")
    await old.start()
    await old.move(ends())
    clock.advance(2 * WEEK.total_seconds())
    young = Run(store, "young")
    await young.start()

    with psycopg.connect(journals) as relay:
        relay.execute("SELECT 1 FROM tidewheel_outbox ORDER BY run_key LIMIT 1 FOR UPDATE")
        retiring = asyncio.create_task(store.tend("default", ended_before=clock.now))
        await somebody_waits(journals)
        await young.tell(signal())
        is_stopped = retiring.done()
        relay.rollback()
    retired = await retiring

    assert not is_stopped
    assert retired == 1
    assert "tidewheel_journal_20260226" not in partitions(journals)


async def test_a_run_that_is_started_while_its_partition_is_dropped_keeps_it(
    store: PostgresStore, journals: str, clock: Clock
) -> None:
    """Its start has locked the partition and is not to be seen yet; after it the partition has a run."""
    await store.tend("default", ended_before=None)
    await Run(store, "r").start()
    clock.advance(2 * WEEK.total_seconds())

    with psycopg.connect(journals) as other:
        # As if the run were just being started: its rows are there, and nobody sees them yet.
        (events,) = other.execute("SELECT array_agg(event) FROM tidewheel_journal AS event").fetchone() or ()
        (runs,) = other.execute("SELECT array_agg(run) FROM tidewheel_runs AS run").fetchone() or ()
        other.execute("DELETE FROM tidewheel_runs")
        other.execute("DELETE FROM tidewheel_journal")
        other.commit()
        other.execute("INSERT INTO tidewheel_runs SELECT * FROM unnest(%s::tidewheel_runs[])", [runs])
        other.execute("INSERT INTO tidewheel_journal SELECT * FROM unnest(%s::tidewheel_journal[])", [events])
        retiring = asyncio.create_task(store.tend("default", ended_before=clock.now))
        await somebody_waits(journals)
        other.commit()
    retired = await retiring

    assert retired == 0
    assert await Run(store, "r").story() == ["ExecutionStarted"]
