"""W1: 1,000 runs of five steps that do nothing, each result durable, all submitted at once."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.systems import BY_CLIENT, PEERS, TIDEWHEEL, TWO_WORKERS, Driver
from benchmarks.workload import Figure, Measured, Target, Workload


def measure(driver: Driver, sizes: Mapping[str, int], **options: bool) -> Measured:
    """Return steps a second, and what each step costs."""
    with driver.observed() as seen:
        figures = driver.ask("many", **sizes, **options)
    steps = sizes["runs"] * sizes["steps"]
    return {
        "steps_s": steps / figures["seconds"],
        "cpu_ms": seen.total_s / steps * 1000,
        "commits": seen.commits / steps,
        "noise": seen.noise,
        **{f"cpu_ms_{name}": cpu_s / steps * 1000 for name, cpu_s in seen.cpu_s.items()},
    }


FIGURES = (
    Figure("steps_s", "steps/s", "more", 0),
    Figure("cpu_ms", "CPU ms/step", digits=3),
    Figure("commits", "commits/step", digits=3),
)

WORKLOAD = Workload(
    name="W1",
    title="throughput: 1,000 runs of 5 steps",
    figures=FIGURES,
    systems=(TIDEWHEEL, TWO_WORKERS, BY_CLIENT, *PEERS),
    measure=measure,
    full={"runs": 1_000, "steps": 5},
    quick={"runs": 100, "steps": 5},
    targets=(
        # On two cores, as the peers have two processes where that helps them.
        Target("steps_s", at_least=4.0, ours="tidewheel x2"),
        Target("steps_s", at_least=20.0, of="dbos", ours="tidewheel x2"),
        Target("cpu_ms", at_most=0.25, ours="tidewheel x2"),
        Target("cpu_ms", at_most=0.25),
    ),
)
