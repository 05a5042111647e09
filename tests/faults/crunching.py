"""Tasks for processes of their own, which misbehave as they are told.

Their process knows nothing of the test but what it is passed: a folder comes along as an argument.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.faults.ledger import Ledger
from tidewheel import App, Context, Retry, StepFailed, current_task

app = App("crunching")
logger = logging.getLogger("crunching")

_OFTEN = Retry(max_attempts=4, initial=0.01, jitter=0.0)


class TooHard(Exception):
    """A failure that the workflow knows by its class."""


@app.task(process=True, retry=_OFTEN)
def crunch(folder: str, name: str) -> dict[str, Any]:
    """Say what it knows of itself."""
    Ledger(Path(folder)).write(name)
    task = current_task()
    logger.info("crunching %s", name)
    return {"pid": os.getpid(), "attempt": task.attempt, "key": task.idempotency_key, "run_id": task.run_id}


@app.task(process=True, retry=_OFTEN)
def crunch_until(folder: str, name: str) -> str:
    """Compute until the test lets it go on."""
    Ledger(Path(folder)).write(name)
    while not Path(folder, name).exists():
        time.sleep(0.005)
    return name


@app.task(process=True, retry=_OFTEN, inline=False)
def crunch_far(folder: str, name: str) -> str:
    """As ``crunch_until``, over the queue."""
    return crunch_until(folder, name)


@app.task(process=True, retry=_OFTEN)
def end_by(folder: str, name: str, how: str) -> Any:
    """Say how far it came, and take the process along; the second attempt says what it was told."""
    Ledger(Path(folder)).write(name)
    task = current_task()
    if task.attempt > 1:
        return task.last_heartbeat
    task.heartbeat({"done": 7})
    if how == "exit":
        os._exit(3)
    signal.raise_signal(signal.Signals[how])
    return "it lives on"


@app.task(process=True, retry=Retry(max_attempts=1), raises=[TooHard])
def fail_by(how: str) -> Any:
    """Fail as told."""
    match how:
        case "class":
            raise TooHard("by far", 17)
        case "exit":
            sys.exit("enough")
        case "result":
            return object()
        case _:
            return "x" * int(how)


@app.task(process=True, timeout=1.0, retry=Retry(max_attempts=1))
def never_end(folder: str, name: str) -> None:
    """Start another process, and never come back."""
    Ledger(Path(folder)).write(name)
    child = subprocess.Popen(["sleep", "1000"])  # noqa: S607 - whichever sleep there is
    Path(folder, f"{name}.child").write_text(str(child.pid))
    while True:
        pass


@app.task(process=True, heartbeat=0.3, retry=Retry(max_attempts=1))
def fall_silent() -> None:
    """Say that it is alive, for a while."""
    for _ in range(5):
        current_task().heartbeat()
        time.sleep(0.1)
    time.sleep(1000)


@app.task(process=True)
def hold_the_lock(folder: str, name: str) -> None:
    """Compute in C, where no other thread of the process gets on, for longer than anybody lives."""
    Ledger(Path(folder)).write(name)
    re.match(r"(a+)+b", "a" * 64)


@app.workflow
async def crunches(ctx: Context, folder: str, count: int) -> list[dict[str, Any]]:
    """Steps side by side."""
    return list(await asyncio.gather(*(ctx.invoke(crunch, folder, f"c{n}") for n in range(count))))


@app.workflow
async def waits(ctx: Context, folder: str, name: str) -> str:
    """A step that waits to be let go."""
    return await ctx.invoke(crunch_until, folder, name)


@app.workflow
async def waits_far(ctx: Context, folder: str, name: str) -> str:
    """The same, over the queue."""
    return await ctx.invoke(crunch_far, folder, name)


@app.workflow
async def dies_beside(ctx: Context, folder: str, how: str) -> list[Any]:
    """A step whose process dies, beside one that goes on."""
    other = ctx.start(crunch_until, folder, "beside")
    died = await ctx.invoke(end_by, folder, "dies", how)
    await ctx.run("let", _let, folder, "beside")
    return [died, await other]


def _let(folder: str, name: str) -> None:
    Path(folder, name).touch()


@app.workflow
async def fails(ctx: Context, how: str) -> str:
    """A step that fails; the code hears of it."""
    try:
        return str(await ctx.invoke(fail_by, how))
    except TooHard as hard:
        return f"TooHard{hard.args}"
    except StepFailed as failed:
        return f"{failed.error_type}: {failed.message}"


@app.workflow
async def outlasts(ctx: Context, folder: str, name: str) -> str:
    """A step that never ends."""
    try:
        await ctx.invoke(never_end, folder, name)
    except StepFailed as failed:
        return f"{failed.error_type}: {failed.message}"
    return "it ended"


@app.workflow
async def falls_silent(ctx: Context) -> str:
    """A step that hangs."""
    try:
        await ctx.invoke(fall_silent)
    except StepFailed as failed:
        return f"{failed.error_type}: {failed.message}"
    return "it ended"


@app.workflow
async def gives_up(ctx: Context, folder: str, name: str) -> str:
    """Code that does not wait for its step for long."""
    try:
        async with asyncio.timeout(1.0):
            return await ctx.invoke(crunch_until, folder, name)
    except TimeoutError:
        return "given up"


@app.workflow
async def grinds(ctx: Context, folder: str, name: str) -> None:
    """A step whose process cannot be reached by anything but the kernel."""
    await ctx.invoke(hold_the_lock, folder, name)
