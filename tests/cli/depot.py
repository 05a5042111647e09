"""An app for tests with a real store: runs that end, fail, wait, and hold on until a file appears."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from tidewheel import App, Context, Retry

app = App("depot")

#: Nothing in a test takes longer than this.
LOOKS_MAX = 3_000
LOOK_S = 0.02


def _note(file: str) -> None:
    with Path(f"{file}.begun").open("a") as begun:
        begun.write("begun\n")


def _is_there(file: str) -> bool:
    return Path(file).exists()


@app.task
async def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


@app.task(retry=Retry(max_attempts=1))
def breaks() -> None:
    """Fail."""
    message = "out of stock"
    raise ValueError(message)


@app.task(retry=Retry(max_attempts=5, initial=0.01))
async def hold(file: str) -> str:
    """Say in ``<file>.begun`` that it began, and go on when *file* is there."""
    _note(file)
    for _ in range(LOOKS_MAX):
        if _is_there(file):
            return "held"
        await asyncio.sleep(LOOK_S)
    raise TimeoutError(file)


@app.task
def block(file: str) -> None:
    """Occupy a thread for longer than anybody waits."""
    _note(file)
    time.sleep(LOOKS_MAX * LOOK_S)


@app.task(process=True)
def square(number: int) -> list[int]:
    """Compute in a process of its own, and say in which."""
    sys.stdout.write(f"squaring {number}\n")
    sys.stdout.flush()
    return [number * number, os.getpid()]


@app.workflow
async def total(ctx: Context, left: int, right: int) -> int:
    """Completes."""
    return await ctx.invoke(add, left, right)


@app.workflow
async def fails(ctx: Context) -> None:
    """Fails."""
    await ctx.invoke(breaks)


@app.workflow
async def waits(ctx: Context) -> list[Any]:
    """Waits for a signal, then for a promise."""
    decision = await ctx.signal("go")
    answer = await ctx.promise("answer")
    return [decision, answer]


@app.workflow
async def naps(ctx: Context, seconds: float) -> str:
    """Sleeps."""
    await ctx.sleep(seconds)
    return "rested"


@app.workflow
async def holds(ctx: Context, file: str) -> list[Any]:
    """Has a step in hand until *file* is there."""
    before = await ctx.invoke(add, 1, 2)
    return [before, await ctx.invoke(hold, file)]


@app.workflow
async def squares(ctx: Context, number: int) -> list[int]:
    """Computes."""
    return await ctx.invoke(square, number)


@app.workflow
async def blocks(ctx: Context, file: str) -> None:
    """Has a thread that does not come back."""
    await ctx.invoke(block, file)
