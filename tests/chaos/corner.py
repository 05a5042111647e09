"""The app of tests that look at one fault: its bodies wait until the test lets them go on."""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path

from tests.chaos.ledger import Ledger
from tidewheel import App, Context, Retry, current_task

app = App("corner")

OFTEN = Retry(max_attempts=50, initial=0.01, max_delay=0.1, jitter=0.0)


#: How many characters the result of ``bulk`` has.
BULK = 1_000_000


class Corner:
    """Where this process's bodies write, and look for what they wait for."""

    folder: Path
    ledger: Ledger


def note(name: str) -> None:
    """Have an effect that cannot be undone."""
    task = current_task()
    Corner.ledger.write(name, task.run_id, task.idempotency_key, task.attempt)


async def let(name: str) -> str:
    """Wait until the test lets *name* go on; return what it says to it."""
    file = Corner.folder / name
    while not file.exists():  # noqa: ASYNC110 - another process makes a file
        await asyncio.sleep(0.01)
    return file.read_text("utf-8")


@app.task(retry=OFTEN)
async def noted(name: str) -> str:
    """Have an effect, and end."""
    note(name)
    return name


@app.task(retry=OFTEN)
async def held(name: str) -> str:
    """Have an effect, then wait."""
    note(name)
    await let(name)
    return name


@app.task(retry=OFTEN, inline=False)
async def held_far(name: str) -> str:
    """As ``held``, over the queue."""
    return await held(name)


@app.task(retry=OFTEN, inline=False)
async def punctual(number: int) -> int:
    """Wait for the moment that the test names, and end in it."""
    note(f"punctual {number}")
    moment = float(await let("moment"))
    await asyncio.sleep(max(moment - time.time(), 0.0))
    return number


@app.task(retry=OFTEN)
async def bulk(name: str) -> str:
    """Return more than fits where there is no room, and what cannot be made smaller."""
    note(name)
    digests = (hashlib.sha256(number.to_bytes(4)).hexdigest() for number in range(BULK // 64 + 1))
    return "".join(digests)[:BULK]


@app.workflow
async def one(ctx: Context, name: str) -> str:
    """One step, then the end."""
    return await ctx.invoke(noted, name)


@app.workflow
async def patient(ctx: Context, name: str) -> str:
    """A step that waits to be let go, then another."""
    return await ctx.invoke(noted, f"after {await ctx.invoke(held, name)}")


@app.workflow
async def patient_far(ctx: Context, name: str) -> str:
    """As ``patient``, over the queue."""
    return await ctx.invoke(noted, f"after {await ctx.invoke(held_far, name)}")


@app.workflow
async def bulky(ctx: Context, name: str) -> int:
    """A step that waits to be let go, then one with a large result."""
    await ctx.invoke(held, name)
    return len(await ctx.invoke(bulk, f"after {name}"))


@app.workflow
async def crowd(ctx: Context, count: int) -> list[int]:
    """Many steps over the queue that end in the same moment."""
    return list(await asyncio.gather(*(ctx.invoke(punctual, number) for number in range(count))))


@app.workflow
async def nap(ctx: Context, seconds: float) -> str:
    """Sleep, then take a step."""
    await ctx.sleep(seconds)
    return await ctx.invoke(noted, "awake")


@app.workflow
async def busy(ctx: Context) -> int:
    """Take a step for every signal, until one says that it is the last."""
    count = 0
    while (number := await ctx.signal("call")) is not None:
        await ctx.invoke(noted, f"{ctx.run_id} {number}")
        count += 1
    return count


@app.workflow
async def called(ctx: Context) -> list[int]:
    """Take every signal until one says that it is the last."""
    got: list[int] = []
    while (number := await ctx.signal("call")) is not None:
        got.append(number)
    return got
