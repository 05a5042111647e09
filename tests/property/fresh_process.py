"""Run by a fresh interpreter: record programs, or prove journals that another process recorded.

python -m tests.property.fresh_process record FIRST LAST JUNK > journals
python -m tests.property.fresh_process prove JUNK < journals
python -m tests.property.fresh_process names                 > journal
python -m tests.property.fresh_process judge < journal
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
from typing import Any

from tests.property.programs import Node, generate
from tests.property.shell import Diverged, Shell, reenact
from tidewheel import App, Context
from tidewheel.journal import jsonform
from tidewheel.testing import Environment, replay

app = App("names")


@app.task
async def greet(name: str) -> str:
    """Greet somebody."""
    return f"hello {name}"


@app.workflow
async def greet_all(ctx: Context, names: list[str], at_once: bool) -> dict[str, str]:
    """Go through the names in the order of a set, which differs from process to process."""
    everyone = set(names)
    if at_once:
        answers = await asyncio.gather(*(ctx.invoke(greet, name) for name in everyone))  # tidewheel: ignore
        return dict(zip(everyone, answers, strict=True))
    return {name: await ctx.invoke(greet, name) for name in everyone}  # tidewheel: ignore


def stir_heap(junk: int) -> list[Any]:
    """Allocate and free at random, so that objects land at other addresses."""
    r = random.Random(junk)
    kept = []
    for _ in range(junk):
        kept.append(bytearray(r.randrange(1, 2_000)))
        if r.random() < 0.5:
            kept.pop(r.randrange(len(kept)))
    return kept


#: A task group that aborts: it cancels its branches in the order of a set of tasks, and each cleans up.
ABORTING: Node = [
    "group",
    [
        ["task", "alpha", 1],
        ["task", "beta", 2],
        *(["attempt", ["sleep", 9 + i], ["sleep", 1]] for i in range(8)),
    ],
]


def record(first: int, last: int) -> None:
    """Print the journal of each program, one JSON list a line."""
    for seed in range(first, last):
        aborting = seed % 4 == 0
        shell = Shell([ABORTING] if aborting else generate(random.Random(seed), depth=3), seed)
        entries = jsonform.to_json(shell.play())
        print(json.dumps({"entries": entries, "uncuttable": sorted(shell.uncuttable)}))


def prove() -> None:
    """Cut and replay every journal on standard input."""
    for line in sys.stdin:
        recorded = json.loads(line)
        journal = jsonform.loads(json.dumps(recorded["entries"]).encode())
        for cut in set(range(1, len(journal), 3)) - set(recorded["uncuttable"]):
            try:
                reenact(journal, cut)
            except Diverged as problem:
                print(problem)


async def names() -> None:
    """Print journals of the workflow that iterates a set, whole and cut short."""
    everyone = ["ada", "grace", "edsger", "barbara", "tony"]
    for at_once in (True, False):
        async with Environment(app) as env:
            handle = await env.client.start(greet_all, everyone, at_once)
            await handle.result()
            entries = await handle.journal()
        for length in range(1, len(entries) + 1):
            print(json.dumps(jsonform.to_json(entries[:length])))


def judge() -> None:
    """Replay the journals of ``names`` and print what each came to."""
    for line in sys.stdin:
        report = replay(greet_all, line)
        print(json.dumps([report.outcome, report.to_json().get("result")]))


def main() -> None:
    """Do what the command line says."""
    logging.disable(logging.CRITICAL)
    verb, *numbers = sys.argv[1:]
    junk = stir_heap(int(numbers[-1])) if numbers else []
    if verb == "record":
        record(int(numbers[0]), int(numbers[1]))
    elif verb == "prove":
        prove()
    elif verb == "names":
        asyncio.run(names())
    elif verb == "judge":
        judge()
    del junk


if __name__ == "__main__":
    main()
