"""A broker over any connection of kombu's, the embedded one first of all.

Kombu waits and blocks, so it runs in threads: a few for everything but consuming, each with a connection
(see ``kombu_pool``), and one for each consumer (see ``kombu_consumer``). What a transport lacks of the
protocol is said in ``lacks``; it is not imitated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tidewheel.broker.kombu_consumer import KombuConsumer
from tidewheel.broker.kombu_pool import WirePool
from tidewheel.broker.kombu_wire import Target, Wire
from tidewheel.broker.message import Publication
from tidewheel.broker.protocol import Untaken
from tidewheel.broker.taking import check_taken
from tidewheel.broker.topology import Topology


class KombuBroker:
    """A broker that kombu knows. Connects when first used, and again after a failure."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._pool = WirePool(target)
        self._consumers: dict[KombuConsumer, None] = {}

    @property
    def lacks(self) -> frozenset[str]:
        """What of the protocol this transport does not have."""
        return self._target.lacks

    async def declare(self, topology: Topology) -> None:
        """Make sure that all of *topology* exists, all or nothing where the transport has commits."""
        await self._pool.do(lambda wire: _declare(wire, topology), declaring=True)

    async def offer(self, publications: Sequence[Publication]) -> list[Untaken | None]:
        """Publish in this order, in one commit where the transport has such a thing."""
        return await self._offer(publications)

    async def publish(self, publications: Sequence[Publication]) -> None:
        """Do the same, and raise ``Unroutable`` for those that no queue takes."""
        check_taken(publications, await self._offer(publications), self._target.shown)

    async def _offer(self, publications: Sequence[Publication]) -> list[Untaken | None]:
        return await self._pool.do(lambda wire: _publish(wire, publications)) if publications else []

    @asynccontextmanager
    async def consume(self, queue: str, *, prefetch: int) -> AsyncIterator[KombuConsumer]:
        """Receive from *queue*; what is unsettled when the block is left goes back to its place."""
        assert prefetch >= 1
        self._pool.check_open()
        consumer = KombuConsumer(self._target, queue, prefetch)
        self._consumers[consumer] = None
        try:
            await consumer.open()
            yield consumer
        finally:
            self._consumers.pop(consumer, None)
            await consumer.close("this consumer was closed")

    async def depth(self, queue: str) -> int:
        """How many messages wait in *queue*; 0 if there is none."""
        return await self._pool.do(lambda wire: wire.depth(queue))

    async def delete_queue(self, queue: str) -> None:
        """Remove *queue* and what is in it; nothing if it is not there."""
        await self._pool.do(lambda wire: wire.channel.queue_delete(queue))

    async def close(self) -> None:
        """Give back what is unsettled and let go. May be called twice."""
        closing = [consumer.close("the broker was closed") for consumer in self._consumers]
        await asyncio.gather(*closing, self._pool.close())


def _declare(wire: Wire, topology: Topology) -> None:
    with wire.one_commit():
        for exchange in topology.exchanges:
            wire.channel.exchange_declare(
                exchange=exchange.name, type=exchange.type, durable=True, auto_delete=False
            )
        for queue in wire.in_safe_order(topology.queues):
            wire.declare_queue(queue)
        for binding in topology.bindings:
            wire.channel.queue_bind(queue=binding.queue, exchange=binding.exchange, routing_key=binding.key)


def _publish(wire: Wire, publications: Sequence[Publication]) -> list[Untaken | None]:
    """Publish all. A message that RabbitMQ refuses ends that with ``BrokerUnavailable``."""
    with wire.one_commit():
        taken = [wire.publish(publication) for publication in publications]
    return [None if is_taken else "unroutable" for is_taken in taken]
