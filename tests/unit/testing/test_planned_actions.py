"""``env.after``: what a test plans for later, and what becomes of a plan that fails."""

from __future__ import annotations

import datetime as dt

import pytest

from tidewheel import App, Context, SignalRejected
from tidewheel.testing import Environment, Stuck

app = App("plans")


@app.workflow
async def nap(ctx: Context, seconds: float) -> str:
    """A sleep."""
    await ctx.sleep(seconds)
    return "rested"


@app.workflow
async def asking(ctx: Context) -> int:
    """A promise that somebody resolves."""
    return await ctx.promise("answer", into=int)


async def test_a_planned_action_that_fails_is_told_at_the_end_of_the_block() -> None:
    """It disturbs no unrelated await, and says which plan it was."""
    results: list[str] = []

    async def scenario() -> None:
        async with Environment(app) as env:
            early = await env.client.start(nap, 0)
            late = await env.client.start(nap, 100)
            env.after(30, early.signal, "go", 5)
            results.append(await late.result())

    with pytest.raises(SignalRejected, match="has ended") as told:
        await scenario()

    assert results == ["rested"]
    assert told.value.__notes__ == [
        "planned with env.after(30, Handle.signal, 'go', 5), due at 2026-01-01T00:00:30+00:00"
    ]


async def test_several_planned_actions_that_fail_are_told_together() -> None:
    """A group of them, in the order in which they were due."""

    def fail(message: str) -> None:
        raise AssertionError(message)

    async def scenario() -> None:
        async with Environment(app) as env:
            env.after(dt.timedelta(seconds=2), fail, "second")
            env.after(1, fail, "first")
            await env.sleep(10)

    with pytest.raises(ExceptionGroup, match="2 planned actions failed") as told:
        await scenario()

    assert [str(problem) for problem in told.value.exceptions] == ["first", "second"]


async def test_a_planned_action_that_fails_explains_what_else_went_wrong() -> None:
    """The block's own error stays the error; the failed plan is a note on it."""

    async def scenario() -> None:
        async with Environment(app) as env:
            handle = await env.client.start(asking)
            env.after(30, handle.resolve, "anwser", 42)
            await handle.result()

    with pytest.raises(Stuck, match="waits for promise 'answer'") as told:
        await scenario()

    (note,) = told.value.__notes__
    assert "env.after(30, Handle.resolve, 'anwser', 42)" in note
    assert "NotFound: run asking-1 has no promise 'anwser'" in note
