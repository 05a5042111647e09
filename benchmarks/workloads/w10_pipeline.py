"""W10: W1 with everything behind it at work: a relay, a projector, and a consumer of every event."""

from __future__ import annotations

import time
from collections.abc import Mapping

import psycopg

from benchmarks.systems import TIDEWHEEL, Driver
from benchmarks.workload import Figure, Measured, Target, Workload, percentile

#: The lag is looked at with half as much to do as can be done, for so many seconds.
_SHARE = 0.5
_STEADY_S = 10
#: How long snapshots may come after the events.
_PROJECTED_S_MAX = 60.0
#: How late each run's snapshot had its last event, and when that was; microseconds.
_PROJECTED = """
SELECT snap.updated_at - run.ended_at, snap.updated_at
  FROM tidewheel_runs AS run
  JOIN tidewheel_snapshots AS snap USING (run_key)
 WHERE run.created_at >= %s AND snap.status = 'COMPLETED'
"""


def measure(driver: Driver, sizes: Mapping[str, int]) -> Measured:
    """Return what goes through at most, and how late events and snapshots are at half of that.

    What goes through at most is what the slowest of them does: all runs have ended, their last event was
    heard, and their last snapshot written.
    """
    runs, steps = sizes["runs"], sizes["steps"]
    driver.ask("pipeline", runs=runs // 5, steps=steps, per_s=0)
    began_s = time.time()
    with driver.observed() as seen:
        most = driver.ask("pipeline", runs=runs, steps=steps, per_s=0)
        _, projected_s = _projected(driver.database, began_s, runs)
    through_s = max(most["heard_seconds"], projected_s - began_s)
    per_s = max(1, int(runs / through_s * _SHARE))
    steady_runs = min(runs, _STEADY_S * per_s)
    began_s = time.time()
    steady = driver.ask("pipeline", runs=steady_runs, steps=steps, per_s=per_s)
    lags_ms, _ = _projected(driver.database, began_s, steady_runs)
    return {
        "steps_s": runs * steps / most["seconds"],
        "events_s": most["events"] / through_s,
        "cpu_ms": seen.total_s / (runs * steps) * 1000,
        "lag_p50_ms": steady["lag_p50_ms"],
        "lag_p99_ms": steady["lag_p99_ms"],
        "projected_p50_ms": percentile(lags_ms, 0.5),
        "projected_p99_ms": percentile(lags_ms, 0.99),
        "noise": seen.noise,
    }


def _projected(database: str, since_s: float, runs: int) -> tuple[list[float], float]:
    """Wait until so many runs that began *since_s* are projected; return how late, and when the last was."""
    deadline = time.monotonic() + _PROJECTED_S_MAX
    with psycopg.connect(database, autocommit=True) as connection:
        while True:
            rows = connection.execute(_PROJECTED, (int(since_s * 1_000_000),)).fetchall()
            if len(rows) >= runs:
                return [lag / 1000 for lag, _ in rows], max(at for _, at in rows) / 1_000_000
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(rows)} of {runs} runs were projected in {_PROJECTED_S_MAX:.0f} s")
            time.sleep(0.05)


WORKLOAD = Workload(
    name="W10",
    title="pipeline: W1 with a relay, a projector and a consumer on the same cores",
    figures=(
        Figure("steps_s", "steps/s", "more", 0),
        Figure("events_s", "events/s heard and projected", "more", 0),
        Figure("cpu_ms", "CPU ms/step", digits=3),
        Figure("lag_p50_ms", "ms heard late at half of that, p50"),
        Figure("lag_p99_ms", "ms heard late, p99"),
        Figure("projected_p50_ms", "ms projected late, p50"),
        Figure("projected_p99_ms", "ms projected late, p99"),
    ),
    systems=(TIDEWHEEL,),
    measure=measure,
    full={"runs": 1_000, "steps": 5},
    quick={"runs": 100, "steps": 5},
    targets=(
        Target("steps_s", at_least=1.0, within="W1"),
        Target("lag_p99_ms", at_most=1_000.0, of=None),
        Target("projected_p99_ms", at_most=1_000.0, of=None),
    ),
)
