"""The roles of one process: started together, stopped together, in the right order.

The first signal asks everything to finish within its grace; a second one ends the process at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from tidewheel.journal.errors import TidewheelError
from tidewheel.store.protocol import Store
from tidewheel.workers.lifeline import is_gone

logger = logging.getLogger("tidewheel.process")

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: The exit code of a process that was told twice to stop.
EXIT_AT_ONCE = 130


class Role(Protocol):
    """Something that runs until it is stopped."""

    async def start(self) -> None:
        """Begin; returns when it works."""

    async def stop(self) -> None:
        """Finish what is in hand and let go. May be called twice."""


@contextlib.asynccontextmanager
async def running(roles: Sequence[Role]) -> AsyncIterator[None]:
    """Run *roles* while the block lasts; they are stopped in the opposite order."""
    begun: list[Role] = []
    try:
        for role in roles:
            begun.append(role)
            await role.start()
        yield
    finally:
        for role in reversed(begun):
            try:
                await role.stop()
            except TidewheelError as problem:
                logger.warning("%s did not stop cleanly: %s", type(role).__name__, problem)


def end_at_once() -> None:
    """End this process, whatever it is doing."""
    os._exit(EXIT_AT_ONCE)


async def until_told_to_stop(told_again: Callable[[], None] = end_at_once) -> None:
    """Return at the first SIGTERM or SIGINT; at each further one, whatever goes on, call *told_again*."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    signals_heard = itertools.count(1)

    # Not the loop's own handlers: those wait for the loop, and user code may be blocking it.
    def hear(_number: int, _frame: object) -> None:
        if next(signals_heard) > 1:
            told_again()
        else:
            loop.call_soon_threadsafe(told.set)

    before = {number: signal.signal(number, hear) for number in _SIGNALS}
    try:
        await told.wait()
    except asyncio.CancelledError:
        for number, handler in before.items():
            signal.signal(number, handler)
        raise


async def release_the_dead(store: Store) -> list[str]:
    """Give up workers of this host whose process has ended: what they had in hand can go on at once."""
    dead = [worker.worker_id for worker in await store.workers() if is_gone(worker)]
    if dead:
        await store.give_up(dead)
    return dead
