"""W3: one run of many steps, one after the other."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.systems import PEERS, TIDEWHEEL, Driver, System
from benchmarks.workload import Figure, Measured, Target, Workload

_LONG = tuple(peer for peer in PEERS if peer.name in ("restate", "absurd", "dbos"))
#: Others of the systems take too long for it, or do not end.
_VERY_LONG: tuple[System, ...] = (TIDEWHEEL,)


def measure(driver: Driver, sizes: Mapping[str, int]) -> Measured:
    """Return what a step costs in a short history and in a long one."""
    found: Measured = {}
    driver.ask("long", steps=100)
    for name, steps in sizes.items():
        if name == "longest" and "recover" not in driver.orders:
            continue
        with driver.observed() as seen:
            seconds = driver.ask("long", steps=steps)["seconds"]
        found[f"{name}_ms"] = seconds / steps * 1000
        found[f"{name}_cpu_ms"] = seen.total_s / steps * 1000
        found["noise"] = max(found.get("noise", 0.0), seen.noise)
    if "replay" in driver.orders:
        replayed = driver.ask("replay")
        found["replay_s"] = replayed["cpu_s"] / replayed["events"] * 10_000
    if "longest_ms" in found:
        found["growth"] = found["longest_ms"] / found["short_ms"]
        found["cpu_growth"] = found["longest_cpu_ms"] / found["short_cpu_ms"]
    return found


WORKLOAD = Workload(
    name="W3",
    title="long history: one run of 1,000, 3,000 and 10,000 steps",
    figures=(
        Figure("short_ms", "ms/step of 1,000", digits=3),
        Figure("long_ms", "of 3,000", digits=3),
        Figure("longest_ms", "of 10,000", digits=3),
        Figure("short_cpu_ms", "CPU ms/step", digits=3),
        Figure("growth", "10,000 : 1,000"),
        Figure("replay_s", "s of CPU, cold replay of 10,000 events", digits=3),
    ),
    systems=(TIDEWHEEL, *_LONG),
    measure=measure,
    full={"short": 1_000, "long": 3_000, "longest": 10_000},
    quick={"short": 100, "long": 200, "longest": 800},
    targets=(
        Target("short_ms", at_most=0.4),
        Target("short_ms", at_most=3.0, of="limits", beside="round_trip_ms"),
        Target("growth", at_most=1.15, of=None),
        Target("replay_s", at_most=0.1, of=None),
    ),
)
