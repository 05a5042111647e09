"""W7: W1 and W2 on the embedded default, SQLite."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.systems import EMBEDDED, Driver
from benchmarks.workload import Figure, Measured, Workload
from benchmarks.workloads import w1_throughput, w2_latency


def measure(driver: Driver, sizes: Mapping[str, int]) -> Measured:
    """Measure both."""
    throughput = w1_throughput.measure(driver, {"runs": sizes["runs"], "steps": sizes["steps"]})
    latency = w2_latency.measure(driver, {"repeats": sizes["repeats"], "steps": sizes["steps"]})
    return {
        "steps_s": throughput["steps_s"],
        "step_cpu_ms": throughput["cpu_ms"],
        "p50_ms": latency["p50_ms"],
        "p99_ms": latency["p99_ms"],
        "noise": max(throughput["noise"], latency["noise"]),
    }


WORKLOAD = Workload(
    name="W7",
    title="embedded: W1 and W2 on SQLite",
    figures=(
        Figure("steps_s", "steps/s", "more", 0),
        Figure("step_cpu_ms", "CPU ms/step", digits=3),
        Figure("p50_ms", "p50 ms"),
        Figure("p99_ms", "p99 ms"),
    ),
    systems=(EMBEDDED,),
    measure=measure,
    full={"runs": 1_000, "steps": 5, "repeats": 200},
    quick={"runs": 200, "steps": 5, "repeats": 50},
    full_only=True,
)
