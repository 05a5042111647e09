"""W4: one run that starts 500 tasks and gathers them: where it runs, and over queues to two workers."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.systems import PEERS, TWO_WORKERS, Driver
from benchmarks.workload import Figure, Measured, Target, Workload

_FANS = tuple(peer for peer in PEERS if peer.name in ("restate", "dbos", "celery"))


def measure(driver: Driver, sizes: Mapping[str, int]) -> Measured:
    """Return the seconds of each, where the system has it."""
    found: Measured = {"noise": 0.0}
    ways = {"inline_s": {}, "queued_s": {"queued": True}}
    for name, options in ways.items():
        try:
            with driver.observed() as seen:
                found[name] = float(driver.ask("fan_out", **sizes, **options)["seconds"])
            found["noise"] = max(found["noise"], seen.noise)
        except RuntimeError:
            continue
    return found


WORKLOAD = Workload(
    name="W4",
    title="fan-out: 500 tasks gathered",
    figures=(Figure("inline_s", "s inline", digits=3), Figure("queued_s", "s over queues", digits=3)),
    systems=(TWO_WORKERS, *_FANS),
    measure=measure,
    full={"tasks": 500},
    quick={"tasks": 500},
    targets=(
        Target("inline_s", at_most=1 / 3, ours="tidewheel x2"),
        Target("queued_s", at_most=1.0, of="celery", ours="tidewheel x2"),
    ),
)
