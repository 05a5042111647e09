"""W2: one run of five steps at a time, from its start to its result."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.systems import BY_CLIENT, PEERS, TIDEWHEEL, Driver
from benchmarks.workload import Figure, Measured, Target, Workload, percentile


def measure(driver: Driver, sizes: Mapping[str, int]) -> Measured:
    """Return how long the middle one took, and the slow ones."""
    driver.ask("latency", repeats=10, steps=sizes["steps"])
    with driver.observed() as seen:
        latencies = driver.ask("latency", **sizes)["latencies"]
    return {
        "p50_ms": percentile(latencies, 0.50) * 1000,
        "p95_ms": percentile(latencies, 0.95) * 1000,
        "p99_ms": percentile(latencies, 0.99) * 1000,
        "cpu_ms": seen.total_s / sizes["repeats"] * 1000,
        "noise": seen.noise,
    }


FIGURES = (
    Figure("p50_ms", "p50 ms"),
    Figure("p95_ms", "p95 ms"),
    Figure("p99_ms", "p99 ms"),
    Figure("cpu_ms", "CPU ms/run"),
)

WORKLOAD = Workload(
    name="W2",
    title="latency: one run of 5 steps at a time",
    figures=FIGURES,
    systems=(TIDEWHEEL, BY_CLIENT, *PEERS),
    measure=measure,
    full={"repeats": 200, "steps": 5},
    quick={"repeats": 15, "steps": 5},
    targets=(Target("p50_ms", at_most=0.4),),
)
