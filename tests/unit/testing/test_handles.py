"""Handles: their ids, durations and deliveries, and what using them costs."""

from __future__ import annotations

import asyncio
import datetime as dt
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tidewheel import App, Context, InvalidRequest
from tidewheel.journal import events as ev
from tidewheel.testing import Environment

app = App("handles")


@app.workflow
async def nap(ctx: Context, seconds: float) -> str:
    """A sleep."""
    await ctx.sleep(seconds)
    return "rested"


@app.workflow
async def tree(ctx: Context) -> list[str]:
    """Two children."""
    return list(await asyncio.gather(ctx.invoke(nap, 1), ctx.invoke(nap, 2)))


async def test_a_result_may_be_awaited_for_a_timedelta() -> None:
    """Durations are seconds or a timedelta, here as everywhere."""
    async with Environment(app) as env:
        handle = await env.client.start(nap, 100)
        with pytest.raises(TimeoutError, match="did not end within 60 virtual seconds"):
            await handle.result(timeout=dt.timedelta(minutes=1))
        with pytest.raises(InvalidRequest, match=r"result\(timeout=\)"):
            await handle.result(timeout="soon")  # type: ignore[arg-type]  # what a user may write

        assert await handle.result(timeout=dt.timedelta(minutes=1)) == "rested"


async def test_a_made_up_run_id_is_nobody_elses() -> None:
    """It counts on past the ids that a test has chosen itself."""
    async with Environment(app) as env:
        chosen = [await env.client.start(nap, 0, run_id=f"nap-{n}") for n in (2, 3)]
        made_up = [await env.client.start(nap, n) for n in range(3)]

        assert [handle.run_id for handle in chosen + made_up] == ["nap-2", "nap-3", "nap-4", "nap-5", "nap-6"]
        assert not any(handle.mismatch for handle in made_up)


@app.workflow
async def listening(ctx: Context, rounds: int) -> list[int]:
    """Take two signals a round."""
    taken = [await ctx.signal("n"), await ctx.signal("n")]
    if rounds:
        ctx.state["taken"] = ctx.state.get("taken", []) + taken
        ctx.continue_as_new(rounds - 1)
    return [*ctx.state.get("taken", []), *taken]


async def test_deliveries_are_numbered_by_name_across_segments() -> None:
    """A signal's delivery ids go on where the last segment's ended."""
    async with Environment(app) as env:
        handle = await env.client.start(listening, 2)
        for n in range(6):
            await handle.signal("n", n)
            await handle.signal("other", n)
            await env.settle()

        assert await handle.result() == list(range(6))
        delivered = [e.event for e in await handle.journal() if isinstance(e.event, ev.SignalDelivered)]
        assert list(dict.fromkeys(one.delivery_id for one in delivered if one.signal_name == "n")) == [
            1, 2, 3, 4, 5, 6,
        ]  # fmt: skip


async def test_ending_a_run_costs_the_same_however_many_others_there_are() -> None:
    """A run knows its own open children: no other run is looked at."""

    async def lookups(others: int) -> int:
        async with Environment(app) as env:
            for _ in range(others):
                await (await env.client.start(nap, 0)).result()
            handle = await env.client.start(tree)
            calls = 0

            def count(frame: Any, event: str, _argument: Any) -> None:
                nonlocal calls
                calls += event == "call"

            sys.setprofile(count)
            try:
                await handle.result()
            finally:
                sys.setprofile(None)
            return calls

    few, many = await lookups(1), await lookups(200)

    assert many < few * 1.2


async def test_sending_a_signal_costs_the_same_however_long_the_journal_is() -> None:
    """The last delivery's number is kept, not looked for."""

    class Counting(list[ev.Entry]):
        looked_at = 0

        def __iter__(self) -> Iterator[ev.Entry]:
            for entry in super().__iter__():
                Counting.looked_at += 1
                yield entry

    async with Environment(app) as env:
        handle = await env.client.start(listening, 0)
        run = env.engine.runs[handle.run_id]
        run.entries = Counting(run.entries)
        for n in range(100):
            await handle.signal("n", n)

        assert Counting.looked_at == 0
