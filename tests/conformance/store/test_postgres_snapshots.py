"""What only Postgres can be asked about snapshots: what is left of runs, how they are queried, and plans."""

from __future__ import annotations

import datetime as dt

import psycopg
import pytest

from tests.conformance.store.driving import Run
from tidewheel.journal.snapshot import Failure, RunSnapshot
from tidewheel.store.postgres.store import PostgresStore
from tidewheel.store.snapshots import Asked, going_on

LATER = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
async def opened(journals: str) -> PostgresStore:
    """A store over a database of the test's own."""
    return await PostgresStore.open(journals)


async def test_what_is_left_of_a_run_that_is_gone_is_found_and_deleted(
    opened: PostgresStore, journals: str
) -> None:
    """A snapshot may be written while its run is retired; the look that passes by deletes it."""
    kept, gone = Run(opened, "kept"), Run(opened, "gone")
    for run in (kept, gone):
        await run.start()
    found = await opened.snapshots.load([Asked(kept.ref), Asked(gone.ref)])
    changes = [going_on(one, RunSnapshot(run_id=one.run.run_id, last_event_seq=0)) for one in found if one]
    with psycopg.connect(journals, autocommit=True) as connection:
        connection.execute("DELETE FROM tidewheel_runs WHERE run_id = 'gone'")
        assert await opened.snapshots.save(changes) == [True, True]

        await opened.snapshots.look("default", after=None, limit=10, quiet_since=LATER)

        left = connection.execute("SELECT run_id FROM tidewheel_snapshots").fetchall()
    assert left == [("kept",)]
    await opened.close()


async def test_people_query_snapshots_as_json(opened: PostgresStore, journals: str) -> None:
    """The columns and the contract's names are there for SQL, also where a text has a NUL in it."""
    run = Run(opened, "r")
    await run.start()
    (found,) = await opened.snapshots.load([Asked(run.ref)])
    assert found is not None
    snapshot = RunSnapshot(
        run_id="r", status="FAILED", last_event_seq=4, root_cause=Failure(code="Broken", message="\0")
    )
    await opened.snapshots.save([going_on(found, snapshot)])

    with psycopg.connect(journals) as connection:
        row = connection.execute(
            "SELECT run_id, status, last_event_seq, stale, snapshot -> 'rootCause' ->> 'code', updated_at > 0"
            "  FROM tidewheel_snapshots WHERE namespace = 'default' AND status = 'FAILED'"
        ).fetchone()

    assert row == ("r", "FAILED", 4, False, "Broken", True)
    await opened.close()
