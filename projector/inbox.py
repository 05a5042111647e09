"""What was delivered and is not settled: first those that wait to be projected, in order, then those in hand.

Bounded: whoever consumes waits for room. Each delivery is counted by its queue until it is settled, so that a
queue can be left without giving back what is about to be acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.protocol import Delivery


class Inbox:
    """Deliveries of all shards of one projector."""

    def __init__(self, size_max: int) -> None:
        self._waiting: asyncio.Queue[Delivery] = asyncio.Queue(size_max)
        self._unsettled: Counter[str] = Counter()
        self._settled = asyncio.Event()

    def __len__(self) -> int:
        """How many wait."""
        return self._waiting.qsize()

    async def put(self, delivery: Delivery) -> None:
        """Let *delivery* wait for its turn; waits for room itself."""
        self._unsettled[delivery.queue] += 1
        try:
            await self._waiting.put(delivery)
        except BaseException:
            self._unsettled[delivery.queue] -= 1
            raise

    async def batch(self, size_max: int, timeout_s: float | None) -> list[Delivery]:
        """Take what is there, at most *size_max*; wait for the first, but not longer than *timeout_s*."""
        found: list[Delivery] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                found.append(await self._waiting.get())
        with contextlib.suppress(asyncio.QueueEmpty):
            while found and len(found) < size_max:
                found.append(self._waiting.get_nowait())
        return found

    async def acknowledge(self, delivery: Delivery) -> None:
        """It is done with. A broker that is away delivers it again, which does no harm."""
        with contextlib.suppress(BrokerUnavailable):
            await delivery.acknowledge()
        self._settle(delivery)

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """Nobody can read it: it becomes a dead letter."""
        with contextlib.suppress(BrokerUnavailable):
            await delivery.bury(reason)
        self._settle(delivery)

    def _settle(self, delivery: Delivery) -> None:
        self._unsettled[delivery.queue] -= 1
        if self._unsettled[delivery.queue] <= 0:
            del self._unsettled[delivery.queue]
        self._settled.set()

    def forget(self, queue: str) -> None:
        """What is unsettled of *queue* went back to it: it does not count any more."""
        self._unsettled.pop(queue, None)

    async def wait_settled(self, queue: str, timeout_s: float) -> bool:
        """Wait until all of *queue* is settled, but not longer than *timeout_s*; tell whether it is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._unsettled.get(queue):
                    self._settled.clear()
                    await self._settled.wait()
        return not self._unsettled.get(queue)
