"""W6: many runs asleep: what they cost, and how soon they are done when they wake at once."""

from __future__ import annotations

import time
from collections.abc import Mapping

import psycopg

from benchmarks import machine
from benchmarks.systems import TIDEWHEEL, Driver
from benchmarks.workload import Figure, Measured, Target, Workload

#: How long it may take until all that were started sleep.
ASLEEP_S_MAX = 600.0
#: One in so many is put to bed before memory is looked at.
FIRST_SHARE = 5
#: Caches have as much in them as they may after so many runs.
CACHES_FULL = 10_000
#: The steps of a run of W1.
STEPS = 5


def measure(driver: Driver, sizes: Mapping[str, int]) -> Measured:
    """Put them to bed, watch for a while, then wake others all at once."""
    processes = driver.ask("processes")
    pids = [processes["keeper"], *processes["workers"]]
    before_bytes = _size(driver.database)
    # The first of them fill caches up to their bounds; what is asked is what each of the others costs.
    first = sizes["asleep"] // FIRST_SHARE
    memory_mb = []
    for runs, asleep in ((first, first), (sizes["asleep"] - first, sizes["asleep"])):
        driver.ask("sleep_long", runs=runs, seconds=86_400)
        _wait_until_asleep(driver.database, asleep)
        time.sleep(sizes["settle_s"])
        memory_mb.append(sum(map(machine.memory_mb, pids)))
    with driver.observed() as seen:
        time.sleep(sizes["watch_s"])
    found = {
        "idle_cpu": seen.cpu_s["python"] / sizes["watch_s"] * 100,
        "idle_cpu_postgres": seen.cpu_s["postgres"] / sizes["watch_s"] * 100,
        "bytes": (_size(driver.database) - before_bytes) / sizes["asleep"],
        "memory_mb": memory_mb[1],
        "noise": seen.noise,
    }
    if first >= CACHES_FULL:
        found["memory_kb"] = (memory_mb[1] - memory_mb[0]) * 1024 / (sizes["asleep"] - first)
    woken = driver.ask("wake", runs=sizes["woken"], seconds=sizes["woken_after_s"])
    found["woken_s"] = sizes["woken"] / woken["seconds"]
    # W1, here and now: a run that wakes does a timer and a step, one of W1's five steps.
    many = driver.ask("many", runs=sizes["compared"], steps=STEPS)
    found["woken_ratio"] = found["woken_s"] / (sizes["compared"] / many["seconds"])
    found["steps_ratio"] = found["woken_ratio"] * 2 / STEPS
    return found


def _wait_until_asleep(database: str, count: int) -> None:
    """Wait until so many runs have their timer: they were only started."""
    deadline = time.monotonic() + ASLEEP_S_MAX
    with psycopg.connect(database, autocommit=True) as connection:
        while time.monotonic() < deadline:
            row = connection.execute("SELECT count(*) FROM tidewheel_timers").fetchone()
            assert row is not None
            if row[0] >= count:
                return
            time.sleep(1)
    raise RuntimeError(f"{count} runs were not asleep after {ASLEEP_S_MAX:g} s")


def _size(database: str) -> int:
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        assert row is not None
        return int(row[0])


WORKLOAD = Workload(
    name="W6",
    title="sleepers: 100,000 runs asleep, 10,000 woken at once",
    figures=(
        Figure("idle_cpu", "% of a core idle"),
        Figure("memory_mb", "MB of memory, keeper and worker", digits=0),
        Figure("memory_kb", "kB of memory for each further run", digits=3),
        Figure("bytes", "bytes of database a run", digits=0),
        Figure("woken_s", "runs woken and done/s", "more", 0),
        Figure("woken_ratio", "x of W1's runs/s", "more"),
        Figure("steps_ratio", "x of W1's steps/s", "more"),
    ),
    systems=(TIDEWHEEL,),
    measure=measure,
    full={
        "asleep": 100_000,
        "settle_s": 5,
        "watch_s": 20,
        "woken": 10_000,
        "woken_after_s": 30,
        "compared": 1_000,
    },
    quick={"asleep": 1_000, "settle_s": 1, "watch_s": 2, "woken": 300, "woken_after_s": 3, "compared": 200},
    targets=(
        Target("idle_cpu", at_most=2.0, of=None),
        Target("memory_kb", at_most=0.02, of=None),
        Target("woken_ratio", at_least=1.0, of=None),
        Target("steps_ratio", at_least=1.0, of=None),
    ),
    rounds_max=1,
    full_only=True,
)
