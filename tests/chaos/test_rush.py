"""Many things to one run in the same moment: each is journaled, and the run wakes."""

from __future__ import annotations

import asyncio
import time

from tests.chaos.corner import called, crowd
from tests.chaos.fleet import Fleet
from tests.faults.place import eventually
from tidewheel.sdk.client import Client

TASKS = 50


async def test_fifty_tasks_of_one_run_end_in_the_same_moment(fleet: Fleet, client: Client) -> None:
    """On several workers, none of which has them all: all 50 are journaled, and the run goes on."""
    for _ in range(3):
        await fleet.serve_ready()
    handle = await client.start(crowd, TASKS, run_id="crowd")
    await eventually(lambda: len(fleet.ledger.lines()) == TASKS, "the start of all tasks")

    fleet.let("moment", str(time.time() + 0.5))
    result = await handle.result(timeout=30)

    lines = fleet.ledger.lines()
    completed = fleet.events("SELECT at FROM events WHERE type = 'InvokeCompleted'")
    assert result == list(range(TASKS))
    assert len(lines) == len(completed) == TASKS
    assert len({line.pid for line in lines}) > 1
    assert fleet.breaches() == []


async def test_signals_from_many_clients_reach_one_run(fleet: Fleet, client: Client) -> None:
    """All of them, in the order in which they were journaled, while workers take them."""
    for _ in range(2):
        await fleet.serve_ready()
    handle = await client.start(called, run_id="called")

    await asyncio.gather(*(handle.signal("call", number) for number in range(200)))
    await handle.signal("call", None)
    result = await handle.result(timeout=60)

    assert sorted(result) == list(range(200))
    assert fleet.breaches() == []
