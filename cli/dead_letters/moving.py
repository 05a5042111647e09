"""``tidewheel dlq redrive`` and ``dlq discard``: let dead letters be tried again, or let them go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeAlias

from tidewheel.cli import output
from tidewheel.cli.connecting import Where, stored
from tidewheel.cli.dead_letters.choosing import Chosen, letter_id
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.timeline.text import counted
from tidewheel.store.outbox import Outbox, Place

Verb: TypeAlias = Literal["redrive", "discard"]
_DONE = {"redrive": "will be tried again", "discard": "will never be published"}
_WOULD = {"redrive": "would be tried again", "discard": "would never be published"}


def move(where: Where, chosen: Chosen, verb: Verb, *, dry_run: bool, as_json: bool) -> ExitCode:
    """Do it to all that were chosen, or say what would be done."""
    chosen.check()
    chosen.check_says_which(verb)
    names, count = asyncio.run(_move(where, chosen, verb, dry_run=dry_run))
    if as_json:
        output.emit_json({verb: count, "dry_run": dry_run, "ids": names})
        return ExitCode.OK
    for name in names:
        output.emit(name)
    told = _WOULD[verb] if dry_run else _DONE[verb]
    output.say(f"{counted(count, 'dead letter')} {told}")
    return ExitCode.OK


async def _move(where: Where, chosen: Chosen, verb: Verb, *, dry_run: bool) -> tuple[list[str], int]:
    names: list[str] = []
    count = 0
    async with stored(where) as (store, namespace):
        act = _act(store.outbox, verb)
        async for page in chosen.found(store.outbox, namespace):
            names += [letter_id(letter) for letter in page]
            count += len(page) if dry_run else await act([letter.place for letter in page])
    return names, count


def _act(outbox: Outbox, verb: Verb) -> Callable[[Sequence[Place]], Awaitable[int]]:
    return outbox.redrive if verb == "redrive" else outbox.discard
