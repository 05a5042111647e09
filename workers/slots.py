"""So many at a time: who finds no slot free waits for one, first come first served.

Like a semaphore, but who waits need not be a task: it may be anything that can be told to begin.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

#: Called when there is a slot for whoever waits; false if it has left.
Waiting: TypeAlias = Callable[[], bool]


class Slots:
    """The slots of a worker, and how many wait for one."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._queue: deque[Waiting] = deque()
        self.taken = 0
        self.waiting = 0

    def take(self) -> bool:
        """Take a slot if one is free; false if there is none."""
        # A slot that becomes free is given to whoever waits: while somebody does, none is free.
        if self.taken >= self._size:
            return False
        self.taken += 1
        return True

    def queue_up(self, begin: Waiting) -> None:
        """Call *begin* once there is a slot for it."""
        self.waiting += 1
        self._queue.append(begin)

    def leave(self) -> None:
        """Somebody who waits does not want a slot any more; when its turn comes it says so."""
        self.waiting -= 1

    async def wait(self) -> None:
        """Take a slot as soon as there is one."""
        if self.take():
            return
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.queue_up(lambda: _give(given))
        try:
            await given
        except asyncio.CancelledError:
            if given.cancelled():
                self.leave()
            else:
                self.give_back()  # it came in the very moment
            raise

    def give_back(self) -> None:
        """Let the next one have the slot."""
        while self._queue:
            if self._queue.popleft()():
                self.waiting -= 1
                return
        self.taken -= 1


def _give(given: asyncio.Future[None]) -> bool:
    if given.done():
        return False
    given.set_result(None)
    return True
