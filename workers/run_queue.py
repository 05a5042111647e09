"""Lets queued runs begin: in the keeper's rounds, and in a worker as soon as a run has made room.

A worker that dies before it has done so has only made somebody wait for the next round.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from tidewheel.broker.message import Publication
from tidewheel.journal.errors import TidewheelError
from tidewheel.sdk.hinting import publications
from tidewheel.store.protocol import Store
from tidewheel.store.run_queue import BATCH_MAX, dequeue_and_start

logger = logging.getLogger("tidewheel.workers")

#: Batches in a row: whoever would go on for longer comes back in the next round.
ROUNDS_MAX = 10


class RunQueue:
    """See the module; *publish* tells the workers of runs that were admitted."""

    def __init__(self, store: Store, publish: Callable[[Sequence[Publication]], Awaitable[None]]) -> None:
        self._store = store
        self._publish = publish
        self._is_stirred = False
        self._going: asyncio.Task[None] | None = None

    async def round(self) -> int:
        """Admit what may be admitted, and return how many runs were."""
        count = 0
        for _ in range(ROUNDS_MAX):
            found = await dequeue_and_start(self._store)
            begun = [one.answer for one in found if one.status == "STARTED" and one.answer is not None]
            if begun:
                await self._publish(publications(begun))
                logger.info("admitted %d queued runs", len(begun))
            count += len(begun)
            if len(found) < BATCH_MAX or not begun:
                break
        return count

    def stir(self) -> None:
        """There may be room: look soon. Whatever makes room meanwhile is looked at once more, together."""
        self._is_stirred = True
        if self._going is None:
            self._going = asyncio.create_task(self._go(), name="tidewheel-run-queue")

    async def idle(self) -> None:
        """Return when nothing is under way here."""
        while self._going is not None:
            await asyncio.wait([self._going])

    async def _go(self) -> None:
        try:
            while self._is_stirred:
                self._is_stirred = False
                await self.round()
        except TidewheelError as problem:
            logger.warning("queued runs wait for a keeper: %s", problem)
        finally:
            self._going = None
