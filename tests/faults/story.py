"""A workflow that uses every durable verb, with bodies that tell when they are executed.

It takes a few tenths of a second: what it waits for comes at once, or is over soon.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.faults.crash_points import Watch
from tests.faults.ledger import Ledger
from tidewheel import App, Context, Retry, current_task

RUN_ID = "story"
#: The signal that the story waits for, and the promise.
SIGNAL, PROMISE = "go", "outside"
#: The result, but for what chance and the clock gave.
EXPECTED = {
    "plain": "plain done",
    "far": "far done",
    "flaky": "flaky done",
    "threaded": "threaded done",
    "stored": "stored done",
    "ran": "ran done",
    "child": "child of 1 done",
    "joined": ["a done", "b done", "c done"],
    "gathered": ["left done", "child of 2 done"],
    "early": {"sent": "before"},
    "late": "timed out",
    "signalled": {"sent": "while it waited"},
    "resolved": {"by": "somebody"},
    "remembered": [1, 2],
    "last": "last done",
}
_RETRY = Retry(max_attempts=6, initial=0.01, jitter=0.0)


class Stage:
    """Where the story is played: set by the process before it begins."""

    ledger: Ledger
    watch: Watch

    @classmethod
    def set(cls, folder: Path, watch: Watch) -> None:
        """Play in *folder*."""
        cls.ledger, cls.watch = Ledger(folder), watch


app = App("story")


def _body(name: str) -> str:
    """Have an effect, between two places to die at."""
    Stage.watch.reach(f"body[{name}]:before")
    Stage.ledger.write(name)
    Stage.watch.reach(f"body[{name}]:after")
    return f"{name} done"


@app.task(retry=_RETRY)
async def note(name: str) -> str:
    """An inline task."""
    return _body(name)


@app.task(retry=_RETRY, inline=False)
async def far(name: str) -> str:
    """A task that goes over the queue."""
    return _body(name)


@app.task(retry=_RETRY)
async def flaky(name: str) -> str:
    """A task whose first attempt fails."""
    done = _body(name)
    if current_task().attempt == 1:
        raise ConnectionError("the first attempt fails")
    return done


@app.task(retry=_RETRY)
def threaded(name: str) -> str:
    """A plain function, executed in a thread."""
    return _body(name)


@app.task(retry=_RETRY, transactional=True)
async def stored(name: str) -> str:
    """A task whose own rows commit with its result."""
    task = current_task()
    task.connection.execute("INSERT INTO shop_rows VALUES (?, ?)", (task.idempotency_key, task.attempt))
    return _body(name)


@app.workflow
async def child(ctx: Context, number: int) -> str:
    """A child run with a timer and a step."""
    await ctx.sleep(0.01)
    return await ctx.invoke(note, f"child of {number}")


@app.workflow
async def story(ctx: Context, told: dict[str, Any]) -> dict[str, Any]:
    """Use everything in the first segment, then continue as new and end in the second."""
    if told:
        return {**told, "remembered": ctx.state["numbers"], "last": await ctx.invoke(note, "last")}
    told = {
        "plain": await ctx.invoke(note, "plain"),
        "far": await ctx.invoke(far, "far"),
        "flaky": await ctx.invoke(flaky, "flaky"),
        "threaded": await ctx.invoke(threaded, "threaded"),
        "stored": await ctx.invoke(stored, "stored"),
        "ran": await ctx.run("ran", _body, "ran"),
        "child": await ctx.invoke(child, 1),
    }
    async with ctx.join_set() as members:
        for name in ("a", "b", "c"):
            members.submit(note, name)
        told["joined"] = sorted([done async for done in members])
    told["gathered"] = list(await asyncio.gather(ctx.invoke(note, "left"), ctx.invoke(child, 2)))
    await ctx.sleep(0.01)
    told["early"] = await ctx.signal("early")
    try:
        await ctx.signal("never", timeout=0.01)
    except TimeoutError:
        told["late"] = "timed out"
    told["signalled"] = await ctx.signal(SIGNAL, timeout=600)
    async with asyncio.timeout(600):
        told["resolved"] = await ctx.promise(PROMISE)
    told["now"], told["random"], told["uuid"] = ctx.now().isoformat(), ctx.random(), str(ctx.uuid())
    ctx.state["numbers"] = [1, 2]
    return ctx.continue_as_new(told)
