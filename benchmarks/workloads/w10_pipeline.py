"""W10: W1 with everything behind it at work: a relay, a projector, and a consumer of every event."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.systems import TIDEWHEEL, Driver
from benchmarks.workload import Figure, Measured, Workload

#: The lag is looked at with half as much to do as can be done.
_SHARE = 0.5


def measure(driver: Driver, sizes: Mapping[str, int]) -> Measured:
    """Return what goes through at most, and how late events are at half of that."""
    runs, steps = sizes["runs"], sizes["steps"]
    driver.ask("pipeline", runs=runs // 5, steps=steps, per_s=0)
    with driver.observed() as seen:
        most = driver.ask("pipeline", runs=runs, steps=steps, per_s=0)
    per_s = max(1, int(runs / most["heard_seconds"] * _SHARE))
    steady = driver.ask("pipeline", runs=min(runs, 10 * per_s), steps=steps, per_s=per_s)
    return {
        "steps_s": runs * steps / most["seconds"],
        "events_s": most["events"] / most["heard_seconds"],
        "cpu_ms": seen.total_s / (runs * steps) * 1000,
        "lag_p50_ms": steady["lag_p50_ms"],
        "lag_p99_ms": steady["lag_p99_ms"],
        "noise": seen.noise,
    }


WORKLOAD = Workload(
    name="W10",
    title="pipeline: W1 with a relay, a projector and a consumer on the same cores",
    figures=(
        Figure("steps_s", "steps/s", "more", 0),
        Figure("events_s", "events/s heard", "more", 0),
        Figure("cpu_ms", "CPU ms/step", digits=3),
        Figure("lag_p50_ms", "ms late at half of that, p50"),
        Figure("lag_p99_ms", "p99"),
    ),
    systems=(TIDEWHEEL,),
    measure=measure,
    full={"runs": 1_000, "steps": 5},
    quick={"runs": 200, "steps": 5},
)
