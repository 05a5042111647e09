"""Stopping: nothing new is begun, what is in hand finishes or is handed back."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.workers.house import House
from tidewheel import App, Context, Retry, StepFailed, current_task
from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.protocol import Delivery
from tidewheel.broker.topology import work_queue

SLOW = 20.0


async def test_a_step_in_hand_may_finish(house: House) -> None:
    """Within the grace its result is written, and the next step is left to others."""
    app = App("stopping")
    executed: list[str] = []

    @app.task
    async def work(name: str) -> None:
        await asyncio.sleep(SLOW)
        executed.append(name)

    @app.workflow
    async def two(ctx: Context) -> str:
        await ctx.invoke(work, "first")
        await ctx.invoke(work, "second")
        return "done"

    worker = await house.worker(app)
    handle = await (await house.client()).start(two)
    await asyncio.sleep(5)
    await worker.stop()

    assert executed == ["first"]
    assert house.kinds(handle.run_id)["InvokeCompleted"] == 1
    await house.worker(app)
    assert await handle.result() == "done"
    assert executed == ["first", "second"]
    assert house.kinds(handle.run_id)["InvokeRetrying"] == 0


async def test_a_step_that_outlasts_the_grace_is_handed_back(house: House) -> None:
    """Another worker goes on at once, without waiting for a lease."""
    app = App("handing-back")

    @app.task
    async def work() -> str:
        await asyncio.sleep(SLOW)
        return "done"

    @app.workflow
    async def one(ctx: Context) -> str:
        return await ctx.invoke(work)

    worker = await house.worker(app)
    handle = await (await house.client()).start(one)
    await asyncio.sleep(5)
    await worker.stop(grace_s=1.0)
    await house.worker(app)
    began = asyncio.get_running_loop().time()

    result = await handle.result()

    assert result == "done"
    assert asyncio.get_running_loop().time() - began < SLOW + 2
    errors = [getattr(event, "error", None) for event in house.events(handle.run_id)]
    assert [error.type for error in errors if error is not None] == ["WorkerStopped"]


async def test_a_queued_step_that_outlasts_the_grace_is_handed_back(house: House) -> None:
    """The same over a queue."""
    app = App("handing-back-queued")

    @app.task(inline=False)
    async def work() -> str:
        await asyncio.sleep(SLOW)
        return "done"

    @app.workflow
    async def one(ctx: Context) -> str:
        return await ctx.invoke(work)

    worker = await house.worker(app)
    await house.keeper()
    handle = await (await house.client()).start(one)
    await asyncio.sleep(5)
    await worker.stop(grace_s=1.0)
    await house.worker(app)

    assert await handle.result() == "done"


@pytest.mark.parametrize("inline", [True, False])
async def test_a_step_that_may_be_executed_once_is_not_handed_back(house: House, inline: bool) -> None:
    """Its one attempt was broken off: the code is told, and nobody executes it again."""
    app = App("once")
    executed: list[int] = []

    @app.task(retry=Retry(max_attempts=1), inline=inline)
    async def work() -> None:
        executed.append(current_task().attempt)
        await asyncio.sleep(SLOW)

    @app.workflow
    async def one(ctx: Context) -> str:
        try:
            await ctx.invoke(work)
        except StepFailed as problem:
            return problem.error_type
        return "?"

    worker = await house.worker(app)
    await house.keeper()
    handle = await (await house.client()).start(one)
    await asyncio.sleep(5)
    await worker.stop(grace_s=1.0)
    await house.worker(app)

    assert await handle.result() == "WorkerStopped"
    assert executed == [1]


async def test_stopping_an_idle_worker_takes_no_time_and_may_be_repeated(house: House) -> None:
    """Runs that wait for something outside hold nothing up."""
    app = App("idle")

    @app.workflow
    async def waits(ctx: Context) -> None:
        await ctx.signal("never")

    worker = await house.worker(app)
    await (await house.client()).start(waits)
    await asyncio.sleep(5)
    began = asyncio.get_running_loop().time()
    await worker.stop()
    await worker.stop()

    assert asyncio.get_running_loop().time() - began < 1
    assert await house.broker.depth(work_queue("default", "default")) == 0
    assert await house.store.workers() == []


@pytest.mark.parametrize("fails_first", [False, True])
async def test_a_consumer_that_is_cancelled_leaves_no_error_behind(house: House, fails_first: bool) -> None:
    """What it waited for ends with it, also if it has just failed: no error is left that nobody looked at."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    closed = asyncio.Event()

    class Closing:
        def __aiter__(self) -> AsyncIterator[Delivery]:
            return self

        async def __anext__(self) -> Delivery:
            await closed.wait()
            raise BrokerUnavailable("this consumer was closed")

    worker = await house.worker(App("brief"))
    receiving = asyncio.create_task(worker._receive(Closing()))
    await asyncio.sleep(0.1)
    if fails_first:
        closed.set()
        await asyncio.sleep(0)  # it has failed, and whoever waits for it has not heard of it
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    del receiving  # its traceback would keep the receive alive
    closed.set()
    await asyncio.sleep(0.1)
    gc.collect()

    assert complaints == []
