"""A known write next to a keeper, which changes a run's row without counting its revision up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from tests.conformance.store.driving import Run, done, ends, resumes, task, waits
from tidewheel.store.append import Fate
from tidewheel.store.postgres import writer
from tidewheel.store.postgres.store import PostgresStore

HELD = 4711
#: The statements have their snapshot when they ask for the time, and have locked nothing yet.
HELD_CLOCK = f"""
CREATE FUNCTION held_clock() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared({HELD});
    RETURN clock_timestamp();
END
$$"""
WAITERS = "SELECT count(*) FROM pg_locks WHERE objid = %s AND NOT granted"
PUT_OFF = "UPDATE tidewheel_runs SET wake_at = wake_at, hints = hints + 1 WHERE run_id = ANY (%s)"
WRITTEN = """
SELECT max(passage.last_seq)
  FROM tidewheel_journal AS passage JOIN tidewheel_runs USING (run_key)
 WHERE run_id = %s"""
PATIENCE_S = 10.0


@pytest.fixture
async def store(journals: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostgresStore]:
    """A store whose write of one run asks ``held_clock`` for the time."""
    async with await psycopg.AsyncConnection.connect(journals, autocommit=True) as connection:
        await connection.execute(HELD_CLOCK)
    statement = writer._SQL["write_one"]
    assert "clock_timestamp()" in statement
    monkeypatch.setitem(writer._SQL, "write_one", statement.replace("clock_timestamp()", "held_clock()"))
    opened = await PostgresStore.open(journals)
    await Run(opened, "first").start()
    yield opened
    await opened.close()


async def somebody_waits(connection: psycopg.AsyncConnection[Any]) -> None:
    """Return when a statement has its snapshot, and waits to be told the time."""
    async with asyncio.timeout(PATIENCE_S):
        while await (await connection.execute(WAITERS, (HELD,))).fetchone() == (0,):  # noqa: ASYNC110 - another process's
            await asyncio.sleep(0.01)


async def test_a_row_that_changes_after_the_snapshot_is_written_with_its_journal(
    store: PostgresStore, journals: str
) -> None:
    """Its new version is locked, and cannot be seen by the statement: all of it is written, or nothing."""
    run = Run(store, "r")
    assert (await run.open(task("0", dispatch="inline"), waits("0"))).fate is Fate.COMMITTED
    async with await psycopg.AsyncConnection.connect(journals, autocommit=True) as keeper:
        await keeper.execute(f"SELECT pg_advisory_lock({HELD})")
        moving = asyncio.ensure_future(run.move(resumes("0"), ends(), facts=[done()]))
        await somebody_waits(keeper)
        await keeper.execute(PUT_OFF, (["r"],))
        await keeper.execute(f"SELECT pg_advisory_unlock({HELD})")

        answer = await moving
        (written,) = await (await keeper.execute(WRITTEN, ("r",))).fetchone() or (None,)

    record = await run.record()
    assert answer.fate is Fate.COMMITTED
    assert (record.last_seq, record.phase) == (written, "Completed")
    assert (await run.story())[-1] == "ExecutionCompleted"
