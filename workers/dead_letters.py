"""What dead letters of work queues mean: workers died with a run, or nobody can read the message.

Losing the message loses nothing: the store knows what is owed. A run whose message died is struck,
tried again, at last alone, and then quarantined. What cannot be read is kept for people.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from tidewheel.broker.errors import BrokerUnavailable, PoisonMessage, Unroutable
from tidewheel.broker.message import REASON, Publication
from tidewheel.broker.protocol import Broker, Delivery
from tidewheel.broker.topology import dead_letter_queue, poison_queue, work_queue, work_topology
from tidewheel.broker.work_items import RunHint, read_item
from tidewheel.journal.errors import TidewheelError
from tidewheel.sdk.hinting import publications
from tidewheel.store.append import Append, Strike
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef
from tidewheel.workers.config import KeeperConfig

logger = logging.getLogger("tidewheel.keeper")

PREFETCH = 16


class DeadLetters:
    """Consumes the dead letters of the work queues."""

    def __init__(self, store: Store, broker: Broker, namespace: str, config: KeeperConfig) -> None:
        self._store = store
        self._broker = broker
        self._namespace = namespace
        self._config = config
        self._listening: dict[str, asyncio.Task[None]] = {}

    async def listen(self, queues: Iterable[str]) -> None:
        """Hear of the dead letters of these queues too."""
        for queue in queues:
            task = self._listening.get(queue)
            if task is None or task.done():  # new, or the broker went away: the queue itself may be gone
                await self._broker.declare(work_topology(self._namespace, [queue]))
                self._listening[queue] = asyncio.create_task(
                    self._consume(queue), name=f"dead-letters-{queue}"
                )

    async def stop(self) -> None:
        """Hear no more."""
        for task in self._listening.values():
            task.cancel()
        await asyncio.gather(*self._listening.values(), return_exceptions=True)
        self._listening = {}

    async def _consume(self, queue: str) -> None:
        dead = dead_letter_queue(work_queue(self._namespace, queue))
        try:
            async with self._broker.consume(dead, prefetch=PREFETCH) as deliveries:
                async for delivery in deliveries:
                    await self._take(delivery)
        except BrokerUnavailable as problem:
            logger.warning("dead letters of %s are heard of again soon: %s", queue, problem)

    async def _take(self, delivery: Delivery) -> None:
        try:
            item = read_item(delivery.message)
        except PoisonMessage as problem:
            await self._keep(delivery, str(problem))
            return
        try:
            if isinstance(item, RunHint):
                await self._strike(item, delivery.message.headers.get(REASON, "a dead letter"))
            await delivery.acknowledge()
        except TidewheelError as problem:
            logger.warning("a dead letter waits: %s", problem)
            await asyncio.sleep(self._config.poll_s)
            await delivery.release()

    async def _strike(self, item: RunHint, reason: str) -> None:
        why = f"workers died with its message, or could not take it: {reason}"
        strike = Strike(reason=why, limit=self._config.strikes, alone=item.alone)
        run = RunRef(item.namespace, item.run_id)
        (answer,) = await self._store.append([Append(run=run, mark=strike)])
        if answer.strikes:
            quarantined = item.alone and answer.strikes >= self._config.strikes
            what = "is quarantined" if quarantined else "is tried alone"
            logger.warning("run %s has %d strikes and %s: %s", run, answer.strikes, what, reason)
        try:
            await self._broker.publish(publications([answer]))
        except Unroutable as problem:
            logger.info("nobody serves a queue: %s", problem)

    async def _keep(self, delivery: Delivery, reason: str) -> None:
        logger.error(
            "a message that nobody can read is kept in %s: %s", poison_queue(self._namespace), reason
        )
        await self._broker.publish(
            [Publication(message=delivery.message, routing_key=poison_queue(self._namespace))]
        )
        await delivery.acknowledge()
