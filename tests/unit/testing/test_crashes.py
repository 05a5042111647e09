"""Crashes in the environment: the journals stay, everything else is derived from them again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidewheel import App, Context, Retry, StepFailed
from tidewheel.testing import Environment, crash_everywhere

app = App("crashes")


@app.task(retry=Retry(max_attempts=3, initial=1))
async def work(item: int) -> int:
    """A task."""
    return item * 2


@app.task(retry=Retry(max_attempts=2))
async def broken(item: int) -> int:
    """A task that always fails."""
    raise ConnectionError(f"no {item}")


@app.workflow
async def nested(ctx: Context, n: int) -> int:
    """A child."""
    await ctx.sleep(5)
    return await ctx.invoke(work, n)


@app.workflow
async def everything(ctx: Context, rounds: int) -> dict[str, Any]:
    """Use every verb there is, twice."""
    found: dict[str, Any] = dict(ctx.state.get("found", {}))
    found[f"step {rounds}"] = await ctx.invoke(work, 1)
    found["operation"] = await ctx.run("operation", lambda: 7)
    found["keyed"] = [await ctx.invoke(work, 2, key="k"), await ctx.invoke(work, 2, key="k")]
    found["child"] = await ctx.invoke(nested, 3)
    found["gathered"] = list(await asyncio.gather(ctx.invoke(work, 4), ctx.invoke(nested, 5)))
    async with ctx.join_set() as joined:
        for n in (6, 7):
            joined.submit(work, n)
        found["joined"] = sorted([result async for result in joined])
    try:
        await ctx.invoke(broken, 8)
    except StepFailed as problem:
        found["failed"] = [problem.error_type, problem.attempts]
    try:
        async with asyncio.timeout(3):
            await ctx.signal("never")
    except TimeoutError:
        found["timeout"] = True
    found["signal"] = await ctx.signal("go", timeout=1000)
    found["promise"] = await ctx.promise("answer", timeout=1000)
    found["chance"] = [isinstance(ctx.random(), float), ctx.uuid().version]
    found["later"] = (ctx.now() - ctx.now()).total_seconds()
    ctx.state["found"] = found
    if rounds:
        ctx.continue_as_new(rounds - 1)
    return found


async def scenario(env: Environment) -> Any:
    """Two rounds of everything, with what it needs from outside."""
    env.fake(work, takes=2)
    handle = await env.client.start(everything, 1, run_id="run")
    for n in range(2):
        env.after(40 + 60 * n, handle.signal, "go", n)
        env.after(50 + 60 * n, handle.resolve, "answer", n)
    return await handle.result()


async def test_a_crash_after_any_event_changes_no_result() -> None:
    """A workflow that uses every verb gives the same result, crashed after each of its events."""
    crashes = await crash_everywhere(app, scenario)

    assert crashes > 100


async def test_a_crash_now_loses_attempts_but_no_journal() -> None:
    """What was in flight is executed again; what was journaled is not."""
    executed: list[int] = []
    async with Environment(app) as env:

        def count(item: int) -> int:
            executed.append(item)
            return item

        env.fake(work, count, takes=10)
        handle = await env.client.start(everything, 0)
        await env.sleep(1)
        env.crash()
        await env.sleep(15)
        env.crash()
        await handle.cancel()
        await env.sleep(1)

        assert executed[:2] == [1, 1]
        assert executed.count(1) == 2


async def test_crash_after_counts_events() -> None:
    """The crash comes once so many events are written; the run goes on from them."""
    async with Environment(app) as env:
        written: list[str] = []
        env.on_event(lambda run_id, entry: written.append(f"{run_id} {type(entry.event).__name__}"))
        env.crash_after(3)

        assert await scenario(env)
        assert written[:2] == ["run ExecutionStarted", "run InvokeScheduled"]


async def test_a_scenario_that_depends_on_memory_is_found() -> None:
    """crash_everywhere fails where a crash changes what the code does."""
    forgetful = App("forgetful")
    memory: list[int] = []

    @forgetful.workflow
    async def order(ctx: Context) -> int:
        memory.append(1)
        await ctx.sleep(1)
        return len(memory)

    async def runs(env: Environment) -> Any:
        memory.clear()
        return await (await env.client.start(order)).result()

    with pytest.raises(AssertionError, match="crashed after event"):
        await crash_everywhere(forgetful, runs)


async def test_the_same_seed_gives_the_same_journal() -> None:
    """A test run twice is the same run; another seed varies chance only."""

    async def journal(seed: int) -> list[Any]:
        async with Environment(app, seed=seed) as env:
            await scenario(env)
            return list(await env.client.handle("run").journal())

    assert await journal(1) == await journal(1)
    assert await journal(1) != await journal(2)
