"""The workflows whose recorded journals are replayed for ever. Add new ones; never change these."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tidewheel import App, Context, Retry, StepFailed

app = App("recorded")


class OutOfStock(Exception):
    """A shelf is empty."""


@dataclass(frozen=True)
class Line:
    """One line of an order."""

    sku: str
    price: Decimal


@app.task(retry=Retry(max_attempts=3, jitter=0.0))
async def charge(lines: list[Line]) -> Decimal:
    """Charge for the lines."""
    return sum((line.price for line in lines), Decimal(0))


@app.task(raises=[OutOfStock])
async def reserve(sku: str) -> str:
    """Reserve one item."""
    return f"reserved {sku}"


@app.task
async def notify(channel: str) -> str:
    """Tell the customer."""
    return f"sent by {channel}"


@app.workflow
async def shipping(ctx: Context, sku: str) -> str:
    """A child run."""
    await ctx.sleep(3_600)
    return f"shipped {sku} on {ctx.now().date()}"


@app.workflow
async def every_verb(ctx: Context, lines: list[Line]) -> dict[str, Any]:
    """One of each durable verb, several at once where that is what they are for."""
    paid = await ctx.invoke(charge, lines)
    ctx.state["paid"] = paid
    quote = await ctx.run("quote", lambda: 42)
    shipped = ctx.start(shipping, lines[0].sku)
    reserved = await asyncio.gather(
        *(ctx.invoke(reserve, line.sku) for line in lines), return_exceptions=True
    )
    async with ctx.join_set() as told:
        for channel in ("email", "sms", "post"):
            told.submit(notify, channel)
        first = await told.next()
    try:
        approval = await ctx.signal("approval", timeout=60)
    except TimeoutError:
        approval = await ctx.promise("second_opinion")
    ctx.state["lucky"] = ctx.random() < 0.5
    del ctx.state["paid"]
    return {
        "paid": paid,
        "quote": quote,
        "reserved": [str(one) for one in reserved],
        "first": first,
        "approval": approval,
        "shipped": await shipped,
        "ticket": len(str(ctx.uuid())),
        "state": dict(ctx.state),
    }


@app.workflow
async def clean_up(ctx: Context) -> str:
    """Cancelled half way, it tidies up durably."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_hold(ctx, "a"))
            group.create_task(_hold(ctx, "b"))
            await ctx.signal("never")
    finally:
        await ctx.invoke(notify, "cancelled")
    return "unreachable"


async def _hold(ctx: Context, sku: str) -> None:
    try:
        await ctx.sleep(1_000)
    finally:
        await ctx.invoke(reserve, sku)


@app.workflow
async def poller(ctx: Context, polls_left: int) -> int:
    """Continue as new until done, with a signal that must not get lost."""
    await asyncio.sleep(10)
    if polls_left > 0:
        ctx.state["polls"] = ctx.state.get("polls", 0) + 1
        ctx.continue_as_new(polls_left - 1)
    return int(await ctx.signal("bonus")) + int(ctx.state["polls"])


@app.workflow
async def failing(ctx: Context) -> str:
    """Fail after a step that failed for good."""
    try:
        return await ctx.invoke(notify, "pigeon", retry=Retry(max_attempts=2, jitter=0.0))
    except StepFailed as problem:
        message = f"gave up after {problem.attempts}"
        raise LookupError(message) from problem
