"""A hundred thousand workflows are suspended and given up; memory stays flat."""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import json
import pathlib
import resource
import subprocess
import sys

from tidewheel import App, Context
from tidewheel.journal import events as ev
from tidewheel.journal.ids import PromiseId
from tidewheel.sdk.program import execution_of
from tidewheel.testing.engine import SeededEntropy

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
RUNS = 100_000
app = App("evicted")
cleaned_up = [0]


@app.task
async def work(value: int) -> int:
    """A step that never ends here."""
    return value


@app.workflow
async def suspended(ctx: Context) -> int:
    """Wait in several branches, each with a durable clean-up."""

    async def branch(value: int) -> int:
        try:
            return await ctx.invoke(work, value)
        finally:
            cleaned_up[0] += 1
            await ctx.invoke(work, -1)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(branch(1))
        group.create_task(branch(2))
        return await branch(3)


def suspend_and_evict() -> int:
    """Make one run, let it suspend, give it up; return how many events it asked for."""
    execution = execution_of(app.workflow_named(suspended), PromiseId("run"), entropy=SeededEntropy(0))
    execution.load([ev.Entry(0, NOW, ev.ExecutionStarted(workflow="suspended", now=NOW))])
    activation = execution.activate(NOW)
    assert activation is not None
    execution.evict()
    assert execution.moves == []
    return len(activation.events)


def resident_bytes() -> int:
    """The memory this process holds."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def measure() -> dict[str, int]:
    """Evict very many, and return what has grown meanwhile."""
    for _ in range(2_000):
        suspend_and_evict()
    gc.collect()
    gc.disable()
    objects, resident = len(gc.get_objects()), resident_bytes()
    cleaned_up[0] = 0
    events = sum(suspend_and_evict() for _ in range(RUNS))
    return {
        "objects": len(gc.get_objects()) - objects,
        "bytes": resident_bytes() - resident,
        "cleaned_up": cleaned_up[0],
        "events": events,
    }


def test_a_hundred_thousand_evicted_workflows_leave_memory_flat() -> None:
    """No clean-up is recorded, and nothing waits for the garbage collector."""
    # In a process of its own: in this one, what other tests have left behind grows and shrinks too.
    ran = subprocess.run([sys.executable, "-m", __name__], stdout=subprocess.PIPE, check=True)

    grown = json.loads(ran.stdout)

    assert grown["objects"] < 1_000
    assert grown["bytes"] < 4_000_000
    assert grown["events"] == 5 * RUNS
    assert grown["cleaned_up"] == 3 * RUNS


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure()))
