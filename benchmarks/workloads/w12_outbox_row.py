"""W12: what the row for the event bus costs W1, with nobody there who publishes it.

There is no setting that leaves it out, and a run without it would lose its events. So the bench takes the
statement that inserts it out of the functions that write groups of appends, in the bench's own database, and
puts it back: W1 with and without it, in turns. What is left out is Postgres's part: the row, its index entry,
its share of the log. That an append knows what it publishes costs the same either way, since the journal
keeps that too. An append that is alone in its group is written by a statement of its own, with its row; how
many rows were still written is among the figures.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping

import psycopg

from benchmarks.systems import TIDEWHEEL, Driver
from benchmarks.workload import Figure, Measured, Target, Workload
from benchmarks.workloads import w1_throughput

_OWED = re.compile(r"INSERT INTO tidewheel_outbox\b[^;]*;")
_FUNCTIONS = """
SELECT pg_get_functiondef(oid) FROM pg_proc
 WHERE pronamespace = current_schema()::regnamespace AND prosrc LIKE '%INSERT INTO tidewheel_outbox%'
"""


def measure(driver: Driver, sizes: Mapping[str, int]) -> Measured:
    """Measure W1 with and without the row in turns, the order changing with each turn."""
    shape = {"runs": sizes["runs"], "steps": sizes["steps"]}
    functions = _functions(driver.database)
    w1_throughput.measure(driver, shape)
    found: dict[bool, list[Measured]] = {True: [], False: []}
    rows = {True: 0, False: 0}
    for turn in range(sizes["turns"]):
        for has_row in (True, False) if turn % 2 else (False, True):
            _define(driver.database, functions if has_row else [without_row(one) for one in functions])
            before = _rows(driver.database)
            found[has_row].append(w1_throughput.measure(driver, shape))
            rows[has_row] += _rows(driver.database) - before
    _define(driver.database, functions)
    rates, cpus = (
        {has_row: statistics.median(one[figure] for one in all_) for has_row, all_ in found.items()}
        for figure in ("steps_s", "cpu_ms")
    )
    return {
        "steps_s": rates[True],
        "without_steps_s": rates[False],
        "steps_ratio": rates[True] / rates[False],
        "cpu_ratio": cpus[True] / cpus[False],
        "rows_left": rows[False] / rows[True],
        "noise": max(one["noise"] for all_ in found.values() for one in all_),
    }


def _functions(database: str) -> list[str]:
    """Return the definitions of what writes the row."""
    with psycopg.connect(database) as connection:
        found = [str(row[0]) for row in connection.execute(_FUNCTIONS).fetchall()]
    assert found, "no function writes to the outbox: this measures nothing"
    return found


def without_row(function: str) -> str:
    """Return a function without the statement that writes the row."""
    changed, count = _OWED.subn("", function)
    assert count == 1, f"a function writes to the outbox {count} times"
    return changed


def _define(database: str, functions: list[str]) -> None:
    with psycopg.connect(database) as connection:
        for function in functions:
            connection.execute(function.encode())


def _rows(database: str) -> int:
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT count(*) FROM tidewheel_outbox").fetchone()
    assert row is not None
    return int(row[0])


WORKLOAD = Workload(
    name="W12",
    title="outbox row: W1 with it and without it, in turns; no relay, no projector",
    figures=(
        Figure("steps_s", "steps/s with it", "more", 0),
        Figure("without_steps_s", "steps/s without it", "more", 0),
        Figure("steps_ratio", "x of the steps/s without it", "more"),
        Figure("cpu_ratio", "x of the CPU without it"),
        Figure("rows_left", "of its rows written all the same"),
    ),
    systems=(TIDEWHEEL,),
    measure=measure,
    full={"runs": 1_000, "steps": 5, "turns": 6},
    quick={"runs": 100, "steps": 5, "turns": 2},
    full_only=True,
    targets=(
        Target("steps_ratio", at_least=0.9, of=None),
        Target("cpu_ratio", at_most=1.1, of=None),
    ),
    rounds_max=3,
)
