"""W9: what a run costs with a million finished ones in the tables, next to what it costs with none."""

from __future__ import annotations

import time
from collections.abc import Mapping

import psycopg

from benchmarks.finished_runs import copy_run, longest_ended, tidy
from benchmarks.systems import TIDEWHEEL, Driver
from benchmarks.workload import Figure, Measured, Target, Workload

#: Postgres's backends tell what they have counted at the latest when they were idle for so long.
COUNTED_AFTER_S = 11.0


def measure(driver: Driver, sizes: Mapping[str, int]) -> Measured:
    """Do some runs, fill the tables, and do some more."""
    shape = {"runs": sizes["runs"], "steps": sizes["steps"]}
    driver.ask("many", **shape)
    tidy(driver.database)
    cpu_before, blocks_before, noise_before = _cost(driver, shape)
    began = time.perf_counter()
    pattern, _ = longest_ended(driver.database)
    copy_run(driver.database, pattern, sizes["finished"])
    filled_s = time.perf_counter() - began
    tidy(driver.database)
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
