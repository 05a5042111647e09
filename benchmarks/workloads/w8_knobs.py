"""W8: W1 with one thing switched off or made small at a time: what each of them brings."""

from __future__ import annotations

from benchmarks.systems import SWITCHED, TIDEWHEEL, TWO_WORKERS
from benchmarks.workload import Workload
from benchmarks.workloads.w1_throughput import FIGURES, measure

WORKLOAD = Workload(
    name="W8",
    title="knobs: W1 with one thing switched off at a time",
    figures=FIGURES,
    systems=(TIDEWHEEL, TWO_WORKERS, *SWITCHED),
    measure=measure,
    full={"runs": 1_000, "steps": 5},
    quick={"runs": 300, "steps": 5},
    full_only=True,
)
