"""W9: what a run costs with a million finished ones in the tables, next to what it costs with none."""

from __future__ import annotations

import time
from collections.abc import Mapping

import psycopg
from psycopg import sql

from benchmarks.systems import TIDEWHEEL, Driver
from benchmarks.workload import Figure, Measured, Target, Workload

#: Postgres's backends tell what they have counted at the latest when they were idle for so long.
COUNTED_AFTER_S = 11.0
#: Rows are copied in parts, each a transaction.
PART = 50_000


def measure(driver: Driver, sizes: Mapping[str, int]) -> Measured:
    """Do some runs, fill the tables, and do some more."""
    shape = {"runs": sizes["runs"], "steps": sizes["steps"]}
    driver.ask("many", **shape)
    _tidy(driver.database)
    cpu_before, blocks_before, noise_before = _cost(driver, shape)
    began = time.perf_counter()
    _fill(driver.database, sizes["finished"])
    filled_s = time.perf_counter() - began
    _tidy(driver.database)
    driver.ask("many", **shape)
    cpu_after, blocks_after, noise_after = _cost(driver, shape)
    return {
        "blocks": blocks_after,
        "blocks_ratio": blocks_after / blocks_before,
        "cpu_ms": cpu_after,
        "cpu_ratio": cpu_after / cpu_before,
        "fill_s": filled_s,
        "noise": max(noise_before, noise_after),
    }


def _cost(driver: Driver, shape: Mapping[str, int]) -> tuple[float, float, float]:
    """Return the CPU milliseconds and the blocks that each run touches."""
    before = _blocks(driver.database)
    with driver.observed() as seen:
        driver.ask("many", **shape)
    after = _blocks(driver.database)
    return seen.total_s / shape["runs"] * 1000, (after - before) / shape["runs"], seen.noise


def _blocks(database: str) -> int:
    """Return how many blocks of the database were looked at so far, once everybody has told."""
    time.sleep(COUNTED_AFTER_S)
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def _fill(database: str, count: int) -> None:
    """Copy a run that has ended, with its journal, so many times; their keys are of the last minutes."""
    with psycopg.connect(database, autocommit=True) as connection:
        row = connection.execute(
            "SELECT run_key FROM tidewheel_runs WHERE ended_at IS NOT NULL LIMIT 1"
        ).fetchone()
        assert row is not None
        for table in ("tidewheel_runs", "tidewheel_journal"):
            copy = _copy(connection, table)
            for first in range(0, count, PART):
                last = min(first + PART, count) - 1
                connection.execute(copy, {"pattern": row[0], "first": first, "last": last})


def _tidy(database: str) -> None:
    """Do what autovacuum would have done by now."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")


def _copy(connection: psycopg.Connection[tuple[object, ...]], table: str) -> sql.Composed:
    names = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
        (table,),
    ).fetchall()
    changed = {
        # As the keys of other runs: the time comes first. One a millisecond.
        "run_key": sql.SQL(
            "substr(pattern.run_key, 1, 1) || substr(int8send(earlier - 1 - number), 4)"
            " || substr(pattern.run_key, 7)"
        ),
        "run_id": sql.SQL("'finished-' || number"),
    }
    columns = [str(name) for (name,) in names]
    values = [changed.get(name, sql.SQL("pattern.") + sql.Identifier(name)) for name in columns]
    return sql.SQL(
        "INSERT INTO {table} ({columns}) SELECT {values} FROM {table} AS pattern,"
        " generate_series(%(first)s::bigint, %(last)s::bigint) AS number,"
        " (SELECT ('x' || encode(substr(%(pattern)s::bytea, 2, 5), 'hex'))::bit(40)::bigint AS earlier) AS at"
        " WHERE pattern.run_key = %(pattern)s"
    ).format(
        table=sql.Identifier(table),
        columns=sql.SQL(", ").join(map(sql.Identifier, columns)),
        values=sql.SQL(", ").join(values),
    )


WORKLOAD = Workload(
    name="W9",
    title="full tables: W1 with a million finished runs in them",
    figures=(
        Figure("blocks", "blocks touched a run", digits=0),
        Figure("blocks_ratio", "x of that with none"),
        Figure("cpu_ms", "CPU ms/run"),
        Figure("cpu_ratio", "x of that with none"),
        Figure("fill_s", "s to fill", digits=0),
    ),
    systems=(TIDEWHEEL,),
    measure=measure,
    full={"runs": 1_000, "steps": 1, "finished": 1_000_000},
    quick={"runs": 200, "steps": 1, "finished": 10_000},
    targets=(Target("blocks_ratio", at_most=1.1, of=None), Target("cpu_ratio", at_most=1.1, of=None)),
    rounds_max=1,
    full_only=True,
)
