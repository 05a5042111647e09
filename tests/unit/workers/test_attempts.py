"""Attempts: each number is executed once, whatever comes in between. The simulation found all of these."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.workers.house import House
from tidewheel import App, Context, Retry, current_task
from tidewheel.journal import events as ev
from tidewheel.workers.config import WorkerConfig

STUBBORN = Retry(max_attempts=10, initial=1.0, jitter=0.0)


async def test_a_step_that_ends_while_its_start_is_written_is_not_executed_again(house: House) -> None:
    """A start that is journaled late is a report, not a claim."""
    app, attempts = App("attempts"), list[int]()

    @app.task(retry=STUBBORN)
    async def work() -> int:
        attempts.append(current_task().attempt)
        await asyncio.sleep(1.0)  # as long as it takes until its start is journaled
        return 7

    @app.workflow
    async def run_it(ctx: Context) -> int:
        return await ctx.invoke(work)

    await house.worker(app, WorkerConfig(started_after_s=1.0))
    handle = await (await house.client()).start(run_it)
    result = await handle.result()
    await asyncio.sleep(10.0)

    assert (result, attempts) == (7, [1])


async def test_a_step_that_is_wanted_again_takes_its_next_number(house: House) -> None:
    """The attempt that the code gave up on was executed, if only in part."""
    app, attempts = App("attempts"), list[int]()

    @app.task(retry=STUBBORN)
    async def work() -> int:
        attempts.append(current_task().attempt)
        await asyncio.sleep(0.5)
        return 7

    @app.workflow
    async def run_it(ctx: Context) -> int:
        try:
            async with asyncio.timeout(0.2):
                await ctx.invoke(work, key="work")
        except TimeoutError:
            await ctx.sleep(1)
        return await ctx.invoke(work, key="work")

    await house.worker(app)
    handle = await (await house.client()).start(run_it)
    result = await handle.result()

    assert (result, attempts) == (7, [1, 2])


async def test_a_retry_begins_once_its_start_is_journaled(house: House) -> None:
    """While it waits another worker may take the step over, and must not begin the same attempt."""
    app, started = App("attempts"), list[int]()

    @app.task(retry=STUBBORN)
    async def work() -> int:
        step = current_task()
        started.append(sum(isinstance(event, ev.InvokeStarted) for event in house.events(step.run_id)))
        if step.attempt < 3:
            raise ConnectionError("not yet")
        return step.attempt

    @app.workflow
    async def run_it(ctx: Context) -> int:
        return await ctx.invoke(work)

    await house.worker(app)
    handle = await (await house.client()).start(run_it)
    result = await handle.result()

    assert (result, started) == (3, [0, 2, 3])


@pytest.mark.parametrize("lost_replies", [1, 10])
async def test_a_queued_step_whose_claim_got_no_reply_is_executed(house: House, lost_replies: int) -> None:
    """The claim stands, so nobody else would execute it: whoever made it finds out, and does."""
    app, attempts = App("attempts"), list[int]()

    @app.task(retry=STUBBORN, queue="far", inline=False)
    async def work() -> int:
        attempts.append(current_task().attempt)
        return 7

    @app.workflow
    async def run_it(ctx: Context) -> int:
        return await ctx.invoke(work)

    await house.worker(app)
    handle = await (await house.client()).start(run_it)
    await house.until(lambda: house.kinds(handle.run_id)["ExecutionAwaiting"] == 1)
    house.store.lost_replies = lost_replies
    await house.worker(app, WorkerConfig(queues=("far",)))
    await house.keeper()
    result = await handle.result()

    assert (result, attempts) == (7, [1])
