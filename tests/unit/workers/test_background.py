"""What goes on in the background: no failure ends it, and none keeps a worker from stopping."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.workers.house import House
from tidewheel import App, Context
from tidewheel.broker.topology import Topology, work_queue
from tidewheel.journal.errors import InvalidRequest

HOUR = 3600.0
app = App("background")


@app.workflow
async def listens(ctx: Context) -> str:
    """Waits for a signal."""
    await ctx.signal("go")
    return "done"


@app.workflow
async def quick(ctx: Context) -> int:
    """Waits for nothing."""
    return 1


async def test_a_worker_stops_in_time_while_the_store_is_away(house: House) -> None:
    """The turn in hand is given up soon after the grace: whoever takes over finds all it needs."""
    worker = await house.worker(app)
    handle = await (await house.client()).start(listens)
    await house.until(lambda: house.kinds(handle.run_id)["ExecutionAwaiting"] == 1)
    house.store.is_down = True
    await house.hint(handle.run_id)
    await asyncio.sleep(1)

    async with asyncio.timeout(10):
        await worker.stop(grace_s=5)

    house.store.is_down = False
    await house.worker(app)
    await handle.signal("go")
    assert await handle.result(timeout=60) == "done"


async def test_a_lease_is_renewed_after_any_failure_to_renew_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that executes steps must not be taken for dead since a driver raised something of its own."""
    worker = await house.worker(app)
    await house.keeper()
    renew, failures = house.store.renew, 1

    async def failing(worker_id: str, lease_s: float) -> bool:
        nonlocal failures
        if failures:
            failures -= 1
            raise RuntimeError("once")
        return await renew(worker_id, lease_s)

    monkeypatch.setattr(house.store, "renew", failing)
    await asyncio.sleep(60)

    assert failures == 0
    assert [one.worker_id for one in await house.store.workers()] == [worker.worker_id]


async def test_a_queue_is_consumed_again_after_its_declaration_was_refused(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that hears nothing must not look alive: it declares and consumes until it succeeds."""
    await house.worker(app)
    await house.keeper()
    client = await house.client()
    await asyncio.sleep(1)  # all that is declared at the beginning is declared
    refusals = 0

    async def refuse(topology: Topology) -> None:
        nonlocal refusals
        refusals += 1
        raise InvalidRequest("the queue exists with other arguments")

    with monkeypatch.context() as patched:
        patched.setattr(house.broker, "declare", refuse)
        await house.broker.delete_queue(work_queue("default", "default"))
        await house.until(lambda: refusals > 0)
    handle = await client.start(quick)

    assert await handle.result(timeout=HOUR) == 1
