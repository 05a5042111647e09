"""W11: what a relay's claim reads with ten million rows of history in the journal, next to what with none.

A few thousand rows are pending all the while, as workers leave them where no relay runs. What was told long
ago has no rows in the outbox. What was told just now has left entries in its index that nobody has cleaned
up yet: that is looked at too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import psycopg

from benchmarks.environments import say
from benchmarks.finished_runs import copy_run, longest_ended, tidy
from benchmarks.systems import TIDEWHEEL, Driver
from benchmarks.workload import Figure, Measured, Target, Workload
from tidewheel.outbox.config import RelayConfig
from tidewheel.store.outbox import LOOKED_MAX, ROWS_MAX
from tidewheel.store.postgres.config import PostgresConfig
from tidewheel.store.statements import statements

#: A claim is looked at more than once: the first time finds caches cold, and index entries that it marks.
LOOKS = 3
#: Copies of a run have keys that end as its own.
_COPIES = "run_key < %(pattern)s AND substr(run_key, 7) = substr(%(pattern)s::bytea, 7)"
_OWE = f"""
INSERT INTO tidewheel_outbox (run_key, first_seq, last_seq, created_at, due_at)
SELECT run_key, first_seq, last_seq, at, at FROM tidewheel_journal
 WHERE {_COPIES} AND public IS NOT NULL
 ORDER BY run_key DESC LIMIT %(count)s
"""  # noqa: S608 - nothing in it comes from outside
_FORGET = f"DELETE FROM tidewheel_outbox WHERE {_COPIES}"  # noqa: S608 - as above


def measure(driver: Driver, sizes: Mapping[str, int]) -> Measured:
    """Leave rows pending, look at a claim, write history, and look at it again."""
    driver.ask("many", runs=1, steps=sizes["steps"])
    driver.ask("many", runs=sizes["pending"], steps=1)
    pattern, rows = longest_ended(driver.database)
    tidy(driver.database)
    before = _claim(driver.database)
    began = time.perf_counter()
    copy_run(driver.database, pattern, sizes["rows"] // rows)
    filled_s = time.perf_counter() - began
    tidy(driver.database)
    after = _claim(driver.database)
    _send(driver.database, pattern, sizes["sent"])
    just_sent = _claim(driver.database)
    nodes = Counter(_nodes(after["Plan"]))
    say(f"a claim with {_count(driver.database):,} rows in the journal:")
    for node, count in nodes.most_common():
        say(f"  {count} x {node}")
    return {
        "claim_ms": after["Execution Time"],
        "blocks": _blocks(after),
        "blocks_ratio": _blocks(after) / _blocks(before),
        "sent_blocks": _blocks(just_sent),
        "through": float(sum(count for node, count in nodes.items() if _goes_through(node))),
        "fill_s": filled_s,
    }


def _claim(database: str) -> dict[str, Any]:
    """Return how Postgres executes the claim of a relay as it comes; what it claims is given back."""
    values = {
        "now": None,
        "after": b"",
        "relay": "bench",
        "limit_max": RelayConfig().batch,
        "looked_max": LOOKED_MAX,
        "rows_max": ROWS_MAX,
        "lease": 1_000_000,
    }
    sql = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statements("postgres", "outbox")["claim"]
    found: dict[str, Any] = {}
    with psycopg.connect(database, options=PostgresConfig().server_options()) as connection:
        for _ in range(LOOKS):
            row = connection.execute(sql.encode(), values).fetchone()
            assert row is not None
            found = row[0][0]
            connection.rollback()
    return found


def _send(database: str, pattern: bytes, count: int) -> None:
    """Let so many rows come and go, as they do when they are told."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(_OWE, {"pattern": pattern, "count": count})
        connection.execute(_FORGET, {"pattern": pattern})


def _count(database: str) -> int:
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT count(*) FROM tidewheel_journal").fetchone()
    assert row is not None
    return int(row[0])


def _blocks(explained: Mapping[str, Any]) -> int:
    plan = explained["Plan"]
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


def _nodes(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a plan reads, and by which index."""
    table, index = plan.get("Relation Name"), plan.get("Index Name")
    if table is not None:
        yield f"{plan['Node Type']} of {table}" + (f" by {index}" if index else "")
    for part in plan.get("Plans", ()):
        yield from _nodes(part)


def _goes_through(node: str) -> bool:
    return node.startswith("Seq Scan")


WORKLOAD = Workload(
    name="W11",
    title="long history: a relay's claim with ten million rows in the journal",
    figures=(
        Figure("blocks", "blocks touched by a claim", digits=0),
        Figure("blocks_ratio", "x of that with no history"),
        Figure("claim_ms", "ms"),
        Figure("sent_blocks", "blocks after very many were sent", digits=0),
        Figure("through", "tables gone through", digits=0),
        Figure("fill_s", "s to fill", digits=0),
    ),
    systems=(TIDEWHEEL,),
    measure=measure,
    full={"rows": 10_000_000, "steps": 9, "pending": 2_000, "sent": 100_000},
    quick={"rows": 100_000, "steps": 9, "pending": 500, "sent": 10_000},
    # Indexes of ten million rows are a level or two deeper: each lookup touches so many blocks more.
    targets=(Target("through", at_most=0.0, of=None), Target("blocks_ratio", at_most=1.5, of=None)),
    rounds_max=1,
    full_only=True,
)
