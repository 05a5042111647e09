"""W0: what the servers and drivers can do at all, in the same run."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.systems import LIMITS, Driver
from benchmarks.workload import Figure, Measured, Workload


def measure(driver: Driver, sizes: Mapping[str, int]) -> Measured:
    """Ask for all of them."""
    return {name: float(value) for name, value in driver.ask("limits", **sizes).items()}


WORKLOAD = Workload(
    name="W0",
    title="limits of this machine",
    figures=(
        Figure("round_trip_ms", "ms: one psycopg INSERT and COMMIT", digits=3),
        Figure("step_ms", "ms: the three rows of a step, no engine", digits=3),
        Figure("commits_s", "single commits/s, 16 connections", "more", 0),
        Figure("events_s", "batched events/s, COPY of 500", "more", 0),
        Figure("publishes_s", "confirmed publishes/s", "more", 0),
        Figure("hop_ms", "ms: one message over a quorum queue", digits=3),
        Figure("run_ms", "ms: the messages and commits of a W2 run, no engine"),
    ),
    systems=(LIMITS,),
    measure=measure,
    full={"seconds": 2},
    quick={"seconds": 1},
)
