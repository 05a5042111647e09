"""An app whose tasks and workflows misbehave as they are told."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from tests.faults.ledger import Ledger
from tidewheel import App, Context, Retry, StepFailed, current_task

app = App("shop")


class Shop:
    """Where this process's bodies write, and look for what they wait for."""

    folder: Path
    ledger: Ledger


def _is_let(name: str) -> bool:
    return (Shop.folder / name).exists()


@app.task(retry=Retry(max_attempts=6, initial=0.01, jitter=0.0))
async def note(name: str) -> str:
    """Have an effect, and end."""
    Shop.ledger.write(name)
    return name


@app.task(retry=Retry(max_attempts=6, initial=0.01, jitter=0.0))
async def wait_for(name: str) -> str:
    """Have an effect, then wait until the test lets it go on."""
    Shop.ledger.write(name)
    while not _is_let(name):  # noqa: ASYNC110 - another process makes a file
        await asyncio.sleep(0.01)
    return name


@app.task(retry=Retry(max_attempts=6, initial=0.01, jitter=0.0), inline=False)
async def wait_far(name: str) -> str:
    """As ``wait_for``, over the queue."""
    return await wait_for(name)


@app.task(retry=Retry(max_attempts=6, initial=0.01, jitter=0.0))
async def hog(name: str) -> str:
    """As ``wait_for``, but nothing else in the process gets on meanwhile: not even its lease is renewed."""
    Shop.ledger.write(name)
    while not _is_let(name):
        time.sleep(0.01)  # noqa: ASYNC251 - that is the mistake
    return name


@app.task(retry=Retry(max_attempts=1))
def recurse(depth: int) -> int:
    """Never come to an end."""
    return recurse(depth + 1)


@app.task(retry=Retry(max_attempts=3, initial=0.01, jitter=0.0))
async def die(name: str) -> str:
    """Take the process along."""
    Shop.ledger.write(name)
    os.kill(os.getpid(), signal.SIGKILL)
    return name


@app.task(retry=Retry(max_attempts=4, initial=0.01, jitter=0.0))
async def fail_then_die(name: str) -> str:
    """Fail at first, then take the process along."""
    if current_task().attempt > 1:
        return await die(name)
    Shop.ledger.write(name)
    raise ConnectionError("the first attempt fails")


@app.task(retry=Retry(max_attempts=2, initial=0.01, jitter=0.0), on_exhausted="park")
async def die_and_park(name: str) -> str:
    """As ``die``, but an operator decides what then."""
    return await die(name)


@app.task(retry=Retry(max_attempts=3, initial=0.01, jitter=0.0), inline=False)
async def die_far(name: str) -> str:
    """As ``die``, over the queue."""
    return await die(name)


@app.task(retry=Retry(max_attempts=6, initial=0.01, jitter=0.0), transactional=True)
async def stored(name: str) -> str:
    """Write a row that commits with the result."""
    Shop.ledger.write(name)
    task = current_task()
    task.connection.execute("INSERT INTO shop_rows VALUES (?, ?)", (task.idempotency_key, task.attempt))
    return name


@app.workflow
async def one(ctx: Context, name: str) -> str:
    """One step, then the end."""
    return await ctx.invoke(note, name)


@app.workflow
async def several(ctx: Context, name: str, count: int) -> int:
    """Steps one after the other."""
    for number in range(count):
        await ctx.invoke(note, f"{name}-{number}")
    return count


@app.workflow
async def patient(ctx: Context, name: str) -> str:
    """A step that waits to be let go, then another."""
    waited = await ctx.invoke(wait_for, name)
    return await ctx.invoke(note, f"after {waited}")


@app.workflow
async def endless(ctx: Context) -> None:
    """Code that never lets go of the process."""
    while True:
        pass


@app.workflow
async def hogging(ctx: Context, name: str) -> str:
    """As ``patient``, with a step that blocks its process."""
    waited = await ctx.invoke(hog, name)
    return await ctx.invoke(note, f"after {waited}")


@app.workflow
async def bottomless(ctx: Context, where: str) -> str:
    """Recurse without end, in a step or in the code itself."""
    if where == "code":
        return _sink(where)
    try:
        return str(await ctx.invoke(recurse, 0))
    except StepFailed as failed:
        return failed.error_type


def _sink(where: str) -> str:
    return _sink(where)


@app.workflow
async def patient_far(ctx: Context, name: str) -> str:
    """As ``patient``, over the queue."""
    waited = await ctx.invoke(wait_far, name)
    return await ctx.invoke(note, f"after {waited}")


@app.workflow
async def doomed(ctx: Context, name: str) -> str:
    """A step whose body kills its process; the code hears of it."""
    try:
        return await ctx.invoke(die, name)
    except StepFailed as failed:
        return f"{failed.error_type} after {failed.attempts}"


@app.workflow
async def doomed_later(ctx: Context, name: str) -> str:
    """As ``doomed``, but the first attempt only fails."""
    try:
        return await ctx.invoke(fail_then_die, name)
    except StepFailed as failed:
        return f"{failed.error_type} after {failed.attempts}"


@app.workflow
async def doomed_far(ctx: Context, name: str) -> str:
    """As ``doomed``, over the queue."""
    try:
        return await ctx.invoke(die_far, name)
    except StepFailed as failed:
        return f"{failed.error_type} after {failed.attempts}"


@app.workflow
async def doomed_and_parked(ctx: Context, name: str) -> str:
    """A step whose body kills its process, until it waits for an operator."""
    return await ctx.invoke(die_and_park, name)


@app.workflow
async def poison(ctx: Context, name: str) -> str:
    """Code that kills its process whenever it is moved, until the test lets it live."""
    if not _is_let("antidote"):
        signal.raise_signal(signal.SIGKILL)
    return await ctx.invoke(note, name)


@app.workflow
async def signalled(ctx: Context, name: str, count: int) -> int:
    """Wait for signals, and take a step with what each of them brought."""
    for _ in range(count):
        await ctx.invoke(note, f"{name} {await ctx.signal('go')}")
    return count


@app.task(retry=Retry(max_attempts=6, initial=0.01, jitter=0.0))
async def bulk(name: str) -> str:
    """Return more than fits where there is no room."""
    Shop.ledger.write(name)
    return name * 50_000


@app.workflow
async def bulky(ctx: Context, name: str) -> int:
    """A step that waits to be let go, then one with a large result."""
    await ctx.invoke(wait_for, name)
    return len(await ctx.invoke(bulk, f"after {name}"))


@app.workflow
async def banking(ctx: Context, name: str) -> str:
    """A step that waits to be let go, then a transactional one."""
    waited = await ctx.invoke(wait_for, name)
    return await ctx.invoke(stored, f"after {waited}")


@app.task(retry=Retry(max_attempts=50, initial=0.01, jitter=0.0), inline=False)
def note_far(name: str) -> str:
    """Have an effect in a thread, over the queue."""
    Shop.ledger.write(name)
    return name


@app.workflow
async def errands(ctx: Context, name: str, count: int) -> int:
    """Steps of every kind, one after the other."""
    often = Retry(max_attempts=50, initial=0.01, jitter=0.0)
    for number in range(count):
        await ctx.invoke(note, f"{name} near {number}", retry=often)
        await ctx.invoke(note_far, f"{name} far {number}")
        await ctx.invoke(stored, f"{name} stored {number}", retry=often)
        await ctx.sleep(0.02)
        await asyncio.gather(
            ctx.invoke(several, f"{name} child {number}", 1),
            ctx.invoke(note, f"{name} side {number}", retry=often),
        )
    return count


@app.task
async def idle() -> None:
    """Do nothing at all."""


@app.workflow
async def long(ctx: Context, count: int) -> int:
    """Very many steps one after the other."""
    for _ in range(count):
        await ctx.invoke(idle)
    return count


@app.task(retry=Retry(max_attempts=6, initial=0.01, jitter=0.0))
async def labour(name: str) -> Any:
    """Say how far it came, again and again, until the test lets it end; then say where it began."""
    Shop.ledger.write(name)
    task = current_task()
    began_at = done = task.last_heartbeat or 0
    while not _is_let(name):
        done += 1
        task.heartbeat(done)
        # In one go: it is read meanwhile, and whoever writes it may be killed.
        (Shop.folder / f"{name}.doing").write_text(str(done))
        (Shop.folder / f"{name}.doing").replace(Shop.folder / f"{name}.done")
        await asyncio.sleep(0.02)
    return began_at


@app.task(retry=Retry(max_attempts=6, initial=0.01, jitter=0.0), inline=False)
async def labour_far(name: str) -> Any:
    """As ``labour``, over the queue."""
    return await labour(name)


@app.workflow
async def laborious(ctx: Context, name: str) -> Any:
    """A long step."""
    return await ctx.invoke(labour, name)


@app.workflow
async def laborious_far(ctx: Context, name: str) -> Any:
    """A long step, over the queue."""
    return await ctx.invoke(labour_far, name)


@app.workflow
async def busy_and_signalled(ctx: Context, name: str, count: int) -> int:
    """Take a step with each signal, while another step is under way."""
    held = ctx.start(wait_for, name)
    for number in range(count):
        await ctx.signal("go")
        await ctx.invoke(note, f"{name} {number}")
    await held
    return count


@app.task(queue="gpu", retry=Retry(max_attempts=6, initial=0.01, jitter=0.0))
async def render(name: str) -> str:
    """A step for workers with other resources."""
    return await wait_for(name)


@app.workflow
async def filming(ctx: Context, name: str, count: int) -> int:
    """Steps for other workers, side by side."""
    await asyncio.gather(*(ctx.invoke(render, f"{name} {number}") for number in range(count)))
    return count
