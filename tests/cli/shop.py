"""An app for the tests of the command: one workflow for each way a run can go."""

from __future__ import annotations

import asyncio

from tidewheel import App, Context, Retry, StepFailed

app = App("shop")


@app.task(retry=Retry(max_attempts=3))
async def charge(amount: int) -> int:
    """Take the money."""
    return amount


@app.task(retry=Retry(max_attempts=1))
async def ship(item: str) -> str:
    """Send one item."""
    return f"sent {item}"


@app.workflow
async def receipt(ctx: Context, amount: int) -> int:
    """A child run."""
    return await ctx.invoke(charge, amount)


@app.workflow
async def order(ctx: Context, amount: int) -> int:
    """Steps in a row, side by side and in a join set."""
    paid = await ctx.invoke(charge, amount)
    await asyncio.gather(ctx.invoke(ship, "a"), ctx.invoke(receipt, paid))
    async with ctx.join_set() as parcels:
        parcels.submit(ship, "b")
        parcels.submit(ship, "c")
        async for _parcel in parcels:
            pass
    return paid


@app.workflow
async def approval(ctx: Context) -> str:
    """Waits for everything that can be waited for."""
    try:
        await ctx.signal("approved", timeout=60)
    except TimeoutError:
        return "too late"
    await ctx.sleep(5)
    answer: str = await ctx.promise("answer")
    return answer


@app.workflow
async def broken(ctx: Context) -> None:
    """Fails because its step fails."""
    try:
        await ctx.invoke(ship, "nothing")
    except StepFailed:
        await ctx.run("note", lambda: "noted")
        raise


@app.workflow
async def counter(ctx: Context, left: int) -> int:
    """Continues as new until nothing is left."""
    await ctx.invoke(charge, left)
    if left:
        ctx.continue_as_new(left - 1)
    return left
