"""The outbox in Postgres: transactions that commit late or hold rows, and what a claim reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from tests.conformance.store.driving import Run
from tidewheel.store.outbox import Claimed, Outbox
from tidewheel.store.postgres.config import PostgresConfig
from tidewheel.store.postgres.store import PostgresStore
from tidewheel.store.statements import statements

LEASE_S = 30.0
LIMIT = 100


@pytest.fixture
async def store(journals: str) -> AsyncIterator[PostgresStore]:
    """A store by the database's own clock."""
    store = await PostgresStore.open(journals)
    yield store
    await store.close()


async def claim(outbox: Outbox, *, after: bytes = b"", limit: int = 100) -> Claimed:
    """Claim as a relay does."""
    return await outbox.claim("relay-1", after=after, limit=limit, lease_s=LEASE_S)


def names(claimed: Claimed) -> list[str]:
    """Return whose rows were claimed; runs that were started together are in no order."""
    return sorted(owed.run.run_id for owed in claimed.owed)


async def started(store: PostgresStore, *run_ids: str) -> None:
    """Start runs, one after the other."""
    for run_id in run_ids:
        await Run(store, run_id).start()


async def test_a_row_that_is_committed_late_is_not_passed_over(store: PostgresStore, journals: str) -> None:
    """Its key is the lowest, and others were claimed meanwhile: it is found when it is there."""
    await started(store, "slow", "b", "c")
    with psycopg.connect(journals) as connection:
        connection.execute(
            b"DELETE FROM tidewheel_outbox AS owed USING tidewheel_runs AS run"
            b" WHERE run.run_id = 'slow' AND owed.run_key = run.run_key"
        )
        connection.commit()
        connection.execute(
            b"INSERT INTO tidewheel_outbox (run_key, first_seq, last_seq, created_at, due_at)"
            b" SELECT run_key, 0, 0, 0, 0 FROM tidewheel_runs WHERE run_id = 'slow'"
        )
        meanwhile = await claim(store.outbox)
        round_again = await claim(store.outbox, after=meanwhile.after)
        connection.commit()

    assert (names(meanwhile), names(round_again)) == (["b", "c"], [])
    assert names(await claim(store.outbox)) == ["slow"]


async def test_a_row_that_somebody_holds_delays_nobody_else(store: PostgresStore, journals: str) -> None:
    """A person with an open transaction, or another relay: the others are claimed without a wait."""
    await started(store, "held", "b")
    with psycopg.connect(journals) as connection:
        connection.execute(
            b"SELECT 1 FROM tidewheel_outbox AS owed JOIN tidewheel_runs AS run USING (run_key)"
            b" WHERE run.run_id = 'held' FOR UPDATE OF owed"
        )
        assert names(await claim(store.outbox)) == ["b"]

    assert names(await claim(store.outbox)) == ["held"]


@pytest.mark.parametrize(("runs", "rows"), [(3, 20_000), (1_000, 6)])
async def test_a_claim_reads_the_lowest_rows_alone(
    store: PostgresStore, journals: str, runs: int, rows: int
) -> None:
    """However much is owed, by few runs or by many: it goes by the primary key, and passes nothing by."""
    await asyncio.gather(*(Run(store, f"r-{number}").start() for number in range(runs)))
    options = PostgresConfig().server_options()
    with psycopg.connect(journals, autocommit=True, options=options) as connection:
        connection.execute(
            b"INSERT INTO tidewheel_outbox (run_key, first_seq, last_seq, created_at, due_at)"
            b" SELECT run_key, seq, seq, 0, 0 FROM tidewheel_runs, generate_series(1, %s - 1) AS seq",
            (rows,),
        )
        plan, blocks = _explained(connection)

    assert "Seq Scan on tidewheel_outbox" not in plan
    assert "Scan using tidewheel_outbox_pk" in plan
    assert "Rows Removed by Join Filter" not in plan
    assert blocks < 60 * min(runs, LIMIT) + 600, plan


def _explained(connection: psycopg.Connection[tuple[object, ...]]) -> tuple[str, int]:
    """Return how a claim is executed, and how many blocks it touches."""
    values = {
        "now": None, "after": b"", "relay": "relay-1", "limit_max": LIMIT, "looked_max": 2_000,
        "rows_max": 64, "lease": 1_000_000,
    }  # fmt: skip
    sql = "EXPLAIN (ANALYZE, BUFFERS, FORMAT TEXT, TIMING off) " + statements("postgres", "outbox")["claim"]
    lines = [str(row[0]) for row in connection.execute(sql.encode(), values).fetchall()]
    touched = next(line for line in lines if "shared hit" in line)
    return "\n".join(lines), int(touched.split("shared hit=")[1].split()[0])
