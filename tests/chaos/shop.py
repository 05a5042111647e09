"""The app whose runs go through everything: its results follow from its inputs (``orders`` has them)."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.chaos.ledger import Ledger
from tests.chaos.orders import PAID
from tidewheel import App, Context, Retry, current_task

app = App("shop")

#: Workers die all the time: a step must not run out of attempts because of it.
OFTEN = Retry(max_attempts=1_000, initial=0.01, max_delay=0.1, jitter=0.0)


class Shop:
    """Where this process's bodies write down what they did."""

    ledger: Ledger


def note(name: str) -> None:
    """Have an effect that cannot be undone."""
    task = current_task()
    Shop.ledger.write(name, task.run_id, task.idempotency_key, task.attempt)


@app.task(retry=OFTEN)
async def price(number: int) -> int:
    """An effect, where the run is."""
    note("price")
    return number + 1


@app.task(retry=OFTEN, inline=False)
async def reserve(number: int) -> int:
    """An effect, over the queue."""
    note("reserve")
    return number + 2


@app.task(retry=OFTEN)
def weigh(number: int) -> int:
    """An effect, in a thread."""
    note("weigh")
    return number + 3


@app.task(retry=OFTEN)
async def wrap(number: int) -> int:
    """The effect of the child."""
    note("wrap")
    return number + 4


@app.task(retry=OFTEN)
async def stamp(number: int) -> int:
    """The effect of one member of a set."""
    note("stamp")
    await asyncio.sleep(0.005)
    return number + 5


@app.task(retry=OFTEN, inline=False)
async def label(number: int) -> int:
    """The effect of the other member."""
    note("label")
    return number + 6


@app.task(retry=OFTEN, transactional=True)
def book(number: int) -> int:
    """A row that commits with the result: there once, however often the body is executed."""
    note("book")
    task = current_task()
    task.connection.execute(
        "INSERT INTO shop_rows (key, attempt) VALUES (%s, %s)", (task.idempotency_key, task.attempt)
    )
    return number + 8


@app.workflow
async def parcel(ctx: Context, number: int) -> dict[str, int]:
    """The child of an order."""
    return {"parcel": await ctx.invoke(wrap, number)}


@app.workflow
async def errand(ctx: Context, number: int) -> dict[str, Any]:
    """A step here, a step over the queue, and a signal."""
    told: dict[str, Any] = {"price": await ctx.invoke(price, number)}
    told["reserved"] = await ctx.invoke(reserve, number)
    told |= await ctx.signal(PAID)
    return told


@app.workflow
async def order(ctx: Context, number: int) -> dict[str, Any]:
    """Every verb."""
    told: dict[str, Any] = {"price": await ctx.invoke(price, number)}
    told["reserved"] = await ctx.invoke(reserve, number)
    told["sides"] = list(await asyncio.gather(ctx.invoke(weigh, number), ctx.invoke(parcel, number)))
    async with ctx.join_set() as members:
        members.submit(stamp, number)
        members.submit(label, number)
        told["joined"] = sorted([done async for done in members])
    await ctx.sleep(0.02)
    told |= await ctx.signal(PAID)
    told["booked"] = await ctx.invoke(book, number)
    return told
