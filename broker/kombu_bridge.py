"""A broker over any connection of kombu's, the embedded one first of all.

Kombu waits and blocks, so it runs in threads: one for everything but consuming, with a connection of
its own, and one for each consumer (see ``kombu_consumer``). What a transport lacks of the protocol is
said in ``lacks``; it is not imitated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from tidewheel.broker.errors import BrokerUnavailable, Unroutable
from tidewheel.broker.kombu_consumer import KombuConsumer, KombuDelivery
from tidewheel.broker.kombu_wire import Target, Wire, our_errors, queue_arguments
from tidewheel.broker.message import Publication, address
from tidewheel.broker.topology import Topology

#: How many operations may wait for the one thread; who comes later waits before it.
PENDING_MAX = 256

_T = TypeVar("_T")


class KombuBroker:
    """A broker that kombu knows. Connects when first used, and again after a failure."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="publish")
        self._pending = asyncio.Semaphore(PENDING_MAX)
        self._consumers: dict[KombuConsumer, None] = {}
        self._wire: Wire | None = None
        self._closed = False

    @property
    def lacks(self) -> frozenset[str]:
        """What of the protocol this transport does not have."""
        return self._target.lacks

    async def declare(self, topology: Topology) -> None:
        """Make sure that all of *topology* exists, all or nothing where the transport has commits."""
        await self._do(lambda wire: _declare(wire, topology), declaring=True)

    async def publish(self, publications: Sequence[Publication]) -> None:
        """Publish in this order, in one commit where the transport has such a thing."""
        lost = await self._do(lambda wire: _publish(wire, publications)) if publications else []
        if lost:
            raise Unroutable(lost)

    @asynccontextmanager
    async def consume(self, queue: str, *, prefetch: int) -> AsyncIterator[AsyncIterator[KombuDelivery]]:
        """Receive from *queue*; what is unsettled when the block is left goes back to its place."""
        assert prefetch >= 1
        self._check_open()
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
        return await self._do(lambda wire: wire.depth(queue))

    async def delete_queue(self, queue: str) -> None:
        """Remove *queue* and what is in it; nothing if it is not there."""
        await self._do(lambda wire: wire.channel.queue_delete(queue))

    async def close(self) -> None:
        """Give back what is unsettled and let go. May be called twice."""
        if self._closed:
            return
        self._closed = True
        await asyncio.gather(*(consumer.close("the broker was closed") for consumer in self._consumers))
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)

    async def _do(self, work: Callable[[Wire], _T], *, declaring: bool = False) -> _T:
        """Run *work* in the one thread, connected."""
        async with self._pending:
            self._check_open()
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._work, work, declaring)

    def _work(self, work: Callable[[Wire], _T], declaring: bool) -> _T:  # noqa: FBT001 - for run_in_executor
        """Do it, in the thread. A connection that failed is not used again."""
        with our_errors(self._target, declaring=declaring):
            try:
                self._wire = self._wire or self._target.connect()
                return work(self._wire)
            except BaseException:
                self._disconnect()
                raise

    def _disconnect(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def _check_open(self) -> None:
        if self._closed:
            raise BrokerUnavailable(f"{self._target.shown} was closed here")


def _declare(wire: Wire, topology: Topology) -> None:
    with wire.one_commit():
        for exchange in topology.exchanges:
            wire.channel.exchange_declare(
                exchange=exchange.name, type=exchange.type, durable=True, auto_delete=False
            )
        for queue in topology.queues:
            wire.channel.queue_declare(queue=queue.name, arguments=queue_arguments(queue))
        for binding in topology.bindings:
            wire.channel.queue_bind(queue=binding.queue, exchange=binding.exchange, routing_key=binding.key)


def _publish(wire: Wire, publications: Sequence[Publication]) -> list[str]:
    """Publish all, and return the addresses that no queue takes."""
    with wire.one_commit():
        return [
            address(publication)
            for publication in publications
            if not wire.publish(
                publication.message, exchange=publication.exchange, routing_key=publication.routing_key
            )
        ]
