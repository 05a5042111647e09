"""The consumer of one shard: it comes back after whatever happens to the broker, and leaves in order."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.protocol import Broker, Deliveries
from tidewheel.broker.topology import Topology
from tidewheel.journal.errors import TidewheelError
from tidewheel.projector.inbox import Inbox

logger = logging.getLogger("tidewheel.projector")

#: The pause before a broker is tried again that did not work.
PAUSE_S: Final = 0.5
PAUSE_MAX_S: Final = 10.0
#: Whoever leaves a shard settles what it has in hand first, if that does not take longer.
LEAVING_S: Final = 2.0


class ShardConsumer:
    """Puts what comes from one queue into the inbox, until it is told to leave."""

    def __init__(self, broker: Broker, queue: str, topology: Topology, inbox: Inbox, prefetch: int) -> None:
        self.queue = queue
        self._broker = broker
        self._topology = topology
        self._inbox = inbox
        self._prefetch = prefetch
        self._deliveries: Deliveries | None = None
        self._is_leaving = False
        self._task: asyncio.Task[None] | None = None

    @property
    def is_consuming(self) -> bool:
        """Whether it hears what is published."""
        return self._deliveries is not None

    def start(self) -> None:
        """Begin to consume."""
        self._task = asyncio.create_task(self._consume_for_ever(), name=f"tidewheel-{self.queue}")

    async def leave(self) -> None:
        """Take no more, settle what is in hand if it goes quickly, and let the others have the rest."""
        self._is_leaving = True
        if self._task is None:
            return
        if self._deliveries is not None:
            await self._deliveries.stop()
            await self._inbox.wait_settled(self.queue, LEAVING_S)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._inbox.forget(self.queue)

    async def _consume_for_ever(self) -> None:
        pause_s = PAUSE_S
        while not self._is_leaving:
            try:
                # Also after it was deleted: what was published meanwhile is found by whoever looks.
                await self._broker.declare(self._topology)
                async with self._broker.consume(self.queue, prefetch=self._prefetch) as deliveries:
                    self._deliveries = deliveries
                    pause_s = PAUSE_S
                    async for delivery in deliveries:
                        await self._inbox.put(delivery)
                    # Left alone: what is in hand may still be settled.
                    await asyncio.Event().wait()
            except BrokerUnavailable as problem:
                logger.warning("queue %s is consumed again soon: %s", self.queue, problem)
            except TidewheelError as problem:
                logger.error("queue %s cannot be consumed: %s", self.queue, problem)  # noqa: TRY400 - its words say it
            finally:
                self._deliveries = None
                self._inbox.forget(self.queue)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
