"""What replay costs: a cold replay of 10,000 events, a live step, a suspended run.

    python benchmarks/bench_replay.py [--json FILE] [--rounds N]

Times are medians of several rounds in one process, with their spread, and CPU time beside
wall time, because machines are noisy. A fixed loop of plain Python is timed in the same
rounds; compare figures of two runs by their ratio to it.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import gc
import json
import pathlib
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from tidewheel import App, Context
from tidewheel.journal import codec
from tidewheel.journal import events as ev
from tidewheel.journal.ids import PromiseId
from tidewheel.replay.execution import Execution
from tidewheel.sdk.program import execution_of

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
STEPS = 2_000
SUSPENDED = 20_000
app = App("bench")


@app.task
async def work(value: int) -> int:
    """A step that does nothing."""
    return value


@app.workflow
async def sequential(ctx: Context, steps: int) -> int:
    """One step after the other: five events each."""
    total = 0
    for step in range(steps):
        total += await ctx.invoke(work, step)
    return total


@app.workflow
async def gathered(ctx: Context, steps: int) -> int:
    """All steps at once: three events each."""
    return sum(await asyncio.gather(*(ctx.invoke(work, step) for step in range(steps))))


class NoEntropy:
    """Nothing here is random."""

    def random(self) -> float:
        """A number."""
        return 0.0

    def uuid(self) -> str:
        """A name."""
        return ""


def execution(workflow: Callable[..., Any]) -> Execution:
    """Make an execution with nothing loaded."""
    return execution_of(app.workflow_named(workflow), PromiseId("bench"), entropy=NoEntropy())


def play(workflow: Callable[..., Any], steps: int) -> list[ev.Entry]:
    """Run a workflow live with the coroutine kept; return its journal."""
    journal: list[ev.Entry] = []

    def put(event: ev.Event) -> ev.Entry:
        entry = ev.Entry(len(journal), NOW, event)
        journal.append(entry)
        return entry

    run = execution(workflow)
    run.load([put(ev.ExecutionStarted(workflow=workflow.__name__, input=[steps], now=NOW))])
    while not isinstance(journal[-1].event, ev.TERMINAL):
        activation = run.activate(NOW)
        for event in activation.events if activation else ():
            put(event)
        step = next(run.open_invokes(), None)
        if step is not None and step.event is not None:
            started = put(ev.InvokeStarted(promise_id=step.path, attempt=1))
            result = ev.Result(ok=step.event.input[0])
            run.load([started, put(ev.InvokeCompleted(promise_id=step.path, result=result, attempt=1))])
    run.evict()
    return journal


def replay(workflow: Callable[..., Any], journal: list[ev.Entry]) -> None:
    """Replay a journal cold."""
    run = execution(workflow)
    run.load(journal)
    run.replay()
    assert isinstance(run.ending(), ev.ExecutionCompleted)
    run.evict()


def decode(stored: list[bytes]) -> list[ev.Entry]:
    """Read a journal from the bytes a store would hold."""
    events = (event for passage in stored for event in codec.decode(passage))
    return [ev.Entry(seq, NOW, event) for seq, event in enumerate(events)]


def spin() -> None:
    """A fixed amount of plain Python, to tell how fast the machine is right now."""
    total = 0
    for number in range(300_000):
        total += number


def measure(work_: Callable[[], object], rounds: int) -> dict[str, float]:
    """Time *work_* in ms: the median of wall and CPU time, and the spread of the wall time."""
    walls, cpus = [], []
    for _ in range(rounds):
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        work_()
        walls.append((time.perf_counter() - wall) * 1e3)
        cpus.append((time.process_time() - cpu) * 1e3)
    return {
        "ms": statistics.median(walls),
        "ms_min": min(walls),
        "ms_max": max(walls),
        "cpu_ms": statistics.median(cpus),
    }


def bytes_per_suspended_run() -> float:
    """How much memory a run takes while it waits for its first step."""
    started = ev.Entry(0, NOW, ev.ExecutionStarted(workflow="sequential", input=[1], now=NOW))

    def suspend() -> Execution:
        run = execution(sequential)
        run.load([started])
        run.activate(NOW)
        return run

    warm = [suspend() for _ in range(100)]
    gc.collect()
    before = _resident()
    kept = [suspend() for _ in range(SUSPENDED)]
    used = _resident() - before
    for run in (*warm, *kept):
        run.evict()
    return used / SUSPENDED


def _resident() -> int:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def main() -> None:
    """Measure, print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=pathlib.Path, help="also write the figures here")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()

    journal, wide = play(sequential, STEPS), play(gathered, 10_000 // 3)
    written = [entry.event for entry in journal]
    stored = [codec.encode(written[first : first + 5]) for first in range(0, len(written), 5)]
    workloads: list[tuple[str, Callable[[], object], int]] = [
        ("plain Python loop (the machine's speed)", spin, 0),
        ("cold replay, sequential", lambda: replay(sequential, journal), len(journal)),
        ("cold replay from stored bytes", lambda: replay(sequential, decode(stored)), len(journal)),
        ("cold replay, gathered", lambda: replay(gathered, wide), len(wide)),
        ("live, sequential", lambda: play(sequential, STEPS), len(journal)),
    ]
    results: dict[str, dict[str, float]] = {}
    print(f"{'workload':42} {'events':>7} {'ms':>8} {'min..max':>17} {'CPU ms':>8} {'µs/event':>9}")
    for name, work_, events in workloads:
        print(f"  measuring {name} ...", end="\r", file=sys.stderr)
        figures = measure(work_, options.rounds)
        figures["us_per_event"] = figures["ms"] / events * 1e3 if events else 0.0
        results[name] = figures
        spread = f"{figures['ms_min']:.1f}..{figures['ms_max']:.1f}"
        each = f"{figures['us_per_event']:9.2f}" if events else " " * 9
        print(f"{name:42} {events:7} {figures['ms']:8.1f} {spread:>17} {figures['cpu_ms']:8.1f} {each}")
    suspended = bytes_per_suspended_run()
    results["suspended run"] = {"bytes": suspended}
    print(f"{'suspended run, in memory':42} {SUSPENDED:7} runs {suspended:12.0f} bytes each")
    cold = results["cold replay, sequential"]["ms"] * 10_000 / len(journal)
    print(f"\n10,000 events replayed cold in {cold:.0f} ms; the bound is 100 ms")
    if options.json:
        report = {"python": platform.python_version(), "rounds": options.rounds, "results": results}
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    if cold > 100:
        sys.exit("cold replay is slower than its bound")


if __name__ == "__main__":
    main()
