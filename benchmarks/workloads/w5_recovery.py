"""W5: W1 with a worker killed in the middle, next to W1 without."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.systems import TWO_WORKERS, Driver
from benchmarks.workload import Figure, Measured, Target, Workload


def measure(driver: Driver, sizes: Mapping[str, int]) -> Measured:
    """Return how long each took, and how many steps were executed more than once."""
    calm_s = driver.ask("recover", **sizes, kill=False)["seconds"]
    disturbed = driver.ask("recover", **sizes, kill=True)
    return {
        "calm_s": calm_s,
        "disturbed_s": disturbed["seconds"],
        "more_s": disturbed["seconds"] - calm_s,
        "twice": float(disturbed["twice"]),
    }


WORKLOAD = Workload(
    name="W5",
    title="recovery: one of two workers killed in mid-W1",
    figures=(
        Figure("calm_s", "s undisturbed"),
        Figure("disturbed_s", "s with the kill"),
        Figure("more_s", "s more"),
        Figure("twice", "steps executed twice", digits=0),
    ),
    systems=(TWO_WORKERS,),
    measure=measure,
    full={"runs": 1_000, "steps": 5},
    quick={"runs": 500, "steps": 5},
    targets=(Target("more_s", at_most=2.0, of=None, ours="tidewheel x2"),),
    full_only=True,
)
