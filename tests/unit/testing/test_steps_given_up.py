"""Steps the code gives up on, comes back to, or leaves behind in a closed segment."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidewheel import App, Context, Retry, StepFailed, current_task
from tidewheel.journal import events as ev
from tidewheel.testing import Environment, Handle, crash_everywhere

app = App("given-up")


@app.task(retry=Retry(max_attempts=5, initial=10, backoff=1, jitter=0))
async def work(item: int) -> int:
    """A task."""
    return item * 2


@app.workflow
async def nested(ctx: Context, item: int) -> int:
    """A child that takes its time."""
    await ctx.sleep(100)
    return await ctx.invoke(work, item)


async def given_up(limit: float, promise: Awaitable[Any]) -> None:
    """Wait for *promise* no longer than *limit*, and abandon it."""
    try:
        async with asyncio.timeout(limit):
            await promise
    except TimeoutError:
        return
    raise AssertionError("it came in time")


def counted(executed: list[int], *, failures: int = 0) -> Callable[[int], int]:
    """A fake of ``work`` that notes its executions; its first few attempts fail."""

    def count(item: int) -> int:
        executed.append(item)
        if current_task().attempt <= failures:
            raise ConnectionError("not yet")
        return item

    return count


async def completions(handle: Handle[Any]) -> list[str]:
    """The paths of the steps that have a result in the journal."""
    journal = await handle.journal()
    return [e.event.promise_id for e in journal if isinstance(e.event, ev.InvokeCompleted)]


# Coming back to it


@app.workflow
async def operation_again(ctx: Context) -> int:
    """Give up on an operation and ask for it again."""
    await given_up(0, ctx.run("op", lambda: 4))
    await ctx.sleep(1)
    return await ctx.run("op", lambda: 4)


async def test_an_operation_given_up_at_once_is_executed_when_asked_for_again() -> None:
    """Abandoned in the activation that scheduled it, it was never begun; its key begins it."""

    async def scenario(env: Environment) -> int:
        return await (await env.client.start(operation_again)).result()

    assert await crash_everywhere(app, scenario) > 5


@app.workflow
async def task_again(ctx: Context, limit: float, pause: float) -> int:
    """Give up on a task and ask for it again."""
    await given_up(limit, ctx.invoke(work, 4, key="k"))
    await ctx.sleep(pause)
    return await ctx.invoke(work, 4, key="k")


async def test_a_task_given_up_while_it_is_executed_is_executed_again() -> None:
    """What was in flight is lost; asking again by key starts a new attempt."""
    executed: list[int] = []
    async with Environment(app) as env:
        env.fake(work, counted(executed), takes=20)
        began = env.now
        handle = await env.client.start(task_again, 5, 5)

        assert await handle.result() == 4
        assert (env.now - began).total_seconds() == 5 + 5 + 20
        assert executed == [4, 4]
        assert await completions(handle) == ["0"]


@pytest.mark.parametrize("pause", [1, 30])
async def test_a_retry_that_falls_while_nobody_waits_comes_once_somebody_does(pause: float) -> None:
    """The step goes on where it stood: not before its retry is due, and not twice."""
    executed: list[int] = []
    async with Environment(app) as env:
        env.fake(work, counted(executed, failures=1))
        began = env.now
        handle = await env.client.start(task_again, 5, pause)

        assert await handle.result() == 4
        assert (env.now - began).total_seconds() == max(10, 5 + pause)
        assert executed == [4, 4]


@pytest.mark.parametrize("pause", [1, 30])
async def test_a_crash_changes_nothing_for_a_step_that_is_given_up_and_asked_for_again(pause: float) -> None:
    """At every point: before it is given up, while nobody waits, after it is taken up."""

    async def scenario(env: Environment) -> int:
        env.fake(work, counted([], failures=1), takes=2)
        return await (await env.client.start(task_again, 5, pause)).result()

    assert await crash_everywhere(app, scenario) > 8


@app.workflow
async def child_again(ctx: Context, limit: float) -> Any:
    """Give up on a child and ask for it again."""
    await given_up(limit, ctx.invoke(nested, 4, key="k"))
    await ctx.sleep(1)
    try:
        return await ctx.invoke(nested, 4, key="k")
    except StepFailed as problem:
        return problem.error_type


@pytest.mark.parametrize(("limit", "outcome"), [(0, 8), (5, "RunCancelled")])
async def test_a_child_given_up_is_cancelled_if_it_had_begun(limit: float, outcome: Any) -> None:
    """A run cannot be uncancelled: asking again gets its end. One that never began is begun."""

    async def scenario(env: Environment) -> Any:
        return await (await env.client.start(child_again, limit)).result()

    async with Environment(app) as env:
        assert await scenario(env) == outcome
    assert await crash_everywhere(app, scenario) > 5


# Leaving it


@app.workflow
async def impatient(ctx: Context) -> str:
    """Give up on a task for good."""
    await given_up(5, ctx.invoke(work, 4))
    await ctx.sleep(100)
    return "done"


async def test_the_result_of_a_step_that_was_given_up_is_not_kept() -> None:
    """A fake that takes time is dropped as a body in flight is: no completion is written."""
    async with Environment(app) as env:
        env.fake(work, takes=20)
        handle = await env.client.start(impatient)

        assert await handle.result() == "done"
        assert await completions(handle) == []


@app.workflow
async def hurried(ctx: Context, rounds: int) -> str:
    """Leave a task in flight."""
    promise = ctx.start(work, 1)
    await ctx.signal("on")
    if rounds:
        ctx.continue_as_new(rounds - 1)
    return "left" if not promise.done() else ""


async def test_a_body_in_flight_is_cancelled_when_its_run_or_segment_ends() -> None:
    """Nobody waits for it any more: neither the run nor the environment."""
    bodies: asyncio.Queue[asyncio.Future[int]] = asyncio.Queue()

    async def never(_item: int) -> int:
        body: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        bodies.put_nowait(body)
        return await body

    async with Environment(app) as env, asyncio.timeout(10):
        env.fake(work, never)
        handle = await env.client.start(hurried, 1)
        results: list[asyncio.Task[str]] = []
        dropped: list[asyncio.Future[int]] = []
        for _ in range(2):
            results.append(asyncio.create_task(handle.result()))
            body = await bodies.get()
            assert all(earlier.cancelled() for earlier in dropped)
            dropped.append(body)
            await handle.signal("on")
        results.append(asyncio.create_task(handle.result()))

        assert await asyncio.gather(*results) == ["left"] * 3
        assert [body.cancelled() for body in dropped] == [True, True]


async def test_a_listener_may_crash_everything_at_any_event() -> None:
    """Also in the middle of an activation: what it asked for is done from the journal."""

    async def events_written(crash_at: int) -> int:
        written = itertools.count(1)
        async with Environment(app) as env:

            def listen(_run_id: str, _entry: ev.Entry) -> None:
                if next(written) == crash_at:
                    env.crash()

            env.on_event(listen)
            env.fake(work, takes=1)
            handle = await env.client.start(family, 1, run_id="r")
            assert await handle.result() == [2, 4, 6]
            return env.engine.events_written

    undisturbed = await events_written(crash_at=0)
    for place in range(1, undisturbed + 1):
        assert await events_written(crash_at=place) == undisturbed


@app.workflow
async def family(ctx: Context, rounds: int) -> list[int]:
    """A child, a task and an operation at once, twice."""
    found = await asyncio.gather(ctx.invoke(nested, 1), ctx.invoke(work, 2), ctx.run("op", lambda: 6))
    if rounds:
        ctx.continue_as_new(rounds - 1)
    return list(found)


@app.workflow
async def leaving(ctx: Context, rounds: int) -> str:
    """Leave a task, a child and a timer open."""
    promises = [ctx.start(work, 1), ctx.start(nested, 2), ctx.sleep(1000)]
    if rounds:
        ctx.continue_as_new(rounds - 1)
    return "left" if len(promises) == 3 else ""


async def test_what_is_scheduled_as_the_segment_closes_is_dropped() -> None:
    """Nothing is executed, started or armed for a segment that is over."""
    executed: list[int] = []
    async with Environment(app) as env:
        env.fake(work, counted(executed))
        began = env.now
        handle = await env.client.start(leaving, 2, run_id="r")

        assert await handle.result() == "left"
        await env.sleep(1)
        assert executed == []
        assert list(env.engine.runs) == ["r"]
        assert env.engine.agenda.next_at() is None
        assert (env.now - began).total_seconds() == 1


@app.workflow
async def moving_on(ctx: Context, rounds: int) -> str:
    """Leave a task and a child open that have begun."""
    promises = [ctx.start(work, 1), ctx.start(nested, 2)]
    await ctx.sleep(1)
    if rounds:
        ctx.continue_as_new(rounds - 1)
    return "left" if len(promises) == 2 else ""


async def test_what_is_open_as_the_segment_closes_is_stopped() -> None:
    """Its children are cancelled, and results that come later are not kept."""
    async with Environment(app) as env:
        env.fake(work, takes=20)
        handle = await env.client.start(moving_on, 1, run_id="r")

        assert await handle.result() == "left"
        await env.sleep(100)
        assert await completions(handle) == []
        children = [env.client.handle(run_id) for run_id in env.engine.runs if run_id != "r"]
        assert [await child.status() for child in children] == ["CANCELLED"] * 2
