"""W1 once more, with every task sent over a queue."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.systems import TIDEWHEEL, TWO_WORKERS, Driver
from benchmarks.workload import Measured, Workload
from benchmarks.workloads import w1_throughput


def measure(driver: Driver, sizes: Mapping[str, int]) -> Measured:
    """As W1, queued."""
    return w1_throughput.measure(driver, sizes, queued=True)


WORKLOAD = Workload(
    name="W1q",
    title="throughput, every task over a queue",
    figures=w1_throughput.FIGURES,
    systems=(TIDEWHEEL, TWO_WORKERS),
    measure=measure,
    full={"runs": 1_000, "steps": 5},
    quick={"runs": 200, "steps": 5},
    full_only=True,
)
