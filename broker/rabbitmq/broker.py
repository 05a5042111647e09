"""The RabbitMQ broker: one connection that publishes, another for everything else.

RabbitMQ stops reading from a connection that publishes while it is short of memory or disk. Consuming and
declaring go over a connection that never publishes, so acknowledgements are heard even then.

What this process declared it declares again on every new connection. A consumer is not resumed behind the
back of who uses it: its iterator ends with ``BrokerUnavailable``, and the next ``consume`` gets the new
connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from aio_pika.abc import AbstractChannel
from aiormq.exceptions import ChannelNotFoundEntity

from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.message import Publication
from tidewheel.broker.protocol import Untaken
from tidewheel.broker.rabbitmq.address import Address
from tidewheel.broker.rabbitmq.connection import Connection, open_connection
from tidewheel.broker.rabbitmq.consumer import RabbitConsumer, Source
from tidewheel.broker.rabbitmq.control import Control, look_for_queue
from tidewheel.broker.rabbitmq.declaring import declare
from tidewheel.broker.rabbitmq.dialer import Dialer
from tidewheel.broker.rabbitmq.publisher import Publisher
from tidewheel.broker.taking import check_taken
from tidewheel.broker.topology import Binding, Exchange, Queue, Topology
from tidewheel.journal.errors import InvalidRequest

_log = logging.getLogger("tidewheel.broker")


@dataclass(slots=True)
class Counts:
    """What happened to this broker's connections, for whoever watches."""

    #: How often RabbitMQ stopped taking messages.
    blocked: int = 0
    #: How often publishing was given up because it took too long.
    publish_timeouts: int = 0
    #: How often a consumer was ended by something else than the program.
    consumers_lost: int = 0


class _Declared:
    """Everything this process declared, by name: to be declared again, and to know the limits of a queue."""

    def __init__(self) -> None:
        self._exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, Queue] = {}
        self._bindings: dict[Binding, None] = {}

    def remember(self, topology: Topology) -> None:
        self._exchanges |= {exchange.name: exchange for exchange in topology.exchanges}
        self.queues |= {queue.name: queue for queue in topology.queues}
        self._bindings |= dict.fromkeys(topology.bindings)

    def forget_queue(self, name: str) -> None:
        self.queues.pop(name, None)
        self._bindings = {binding: None for binding in self._bindings if binding.queue != name}

    @property
    def topology(self) -> Topology:
        return Topology(
            exchanges=tuple(self._exchanges.values()),
            queues=tuple(self.queues.values()),
            bindings=tuple(self._bindings),
        )


class RabbitBroker:
    """A RabbitMQ broker. Connects when first used, and again after a failure."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._declared = _Declared()
        self._consumers: dict[RabbitConsumer, None] = {}
        self._closed = False
        self._publishing = Dialer[Publisher](
            partial(open_connection, address, "publishing"), self._made_publisher, lambda it: it.is_usable
        )
        self._asking = Dialer[Control](
            partial(open_connection, address, "consuming"),
            self._made_control,
            lambda it: it.connection.gone is None,
        )
        self.counts = Counts()

    @property
    def lacks(self) -> frozenset[str]:
        """Nothing."""
        return frozenset()

    @property
    def connections_opened(self) -> int:
        """How many connections were opened until now."""
        return self._publishing.opened + self._asking.opened

    async def declare(self, topology: Topology) -> None:
        """Make sure that all of *topology* exists; ``InvalidRequest`` says what does not fit."""
        self._check_open()
        await declare(await self._asking.get(), topology)
        self._declared.remember(topology)

    async def offer(self, publications: Sequence[Publication]) -> list[Untaken | None]:
        """Publish in this order; return when RabbitMQ has answered to all of them."""
        self._check_open()
        return await self._offer(publications) if publications else []

    async def publish(self, publications: Sequence[Publication]) -> None:
        """Publish in this order; return when RabbitMQ has confirmed all of them."""
        self._check_open()
        if publications:
            await self._publish(publications)

    @asynccontextmanager
    async def consume(self, queue: str, *, prefetch: int) -> AsyncIterator[RabbitConsumer]:
        """Receive from *queue*; what is unsettled when the block is left goes back to it."""
        assert prefetch >= 1
        self._check_open()
        control = await self._asking.get()
        source = Source(
            queue=queue,
            prefetch=prefetch,
            declared=self._declared.queues.get(queue),
            publish=self._publish,
        )
        consumer = await RabbitConsumer.open(source, control.connection)
        self._consumers[consumer] = None
        try:
            yield consumer
        finally:
            self._consumers.pop(consumer, None)
            self.counts.consumers_lost += consumer.is_over and not self._closed
            await consumer.close("this consumer was closed")

    async def depth(self, queue: str) -> int:
        """How many messages wait in *queue*; 0 if there is none."""
        self._check_open()
        control = await self._asking.get()
        try:
            return await control.ask(partial(look_for_queue, name=queue), f"looking at {queue!r}")
        except ChannelNotFoundEntity:
            return 0

    async def delete_queue(self, queue: str) -> None:
        """Remove *queue* and what is in it; nothing if it is not there."""
        self._check_open()

        async def delete(channel: AbstractChannel) -> None:
            await channel.queue_delete(queue)

        control = await self._asking.get()
        self._declared.forget_queue(queue)
        await control.ask(delete, f"deleting {queue!r}")

    async def close(self) -> None:
        """Give back what is unsettled and let go. May be called twice."""
        self._closed = True
        await asyncio.gather(*(consumer.close("the broker was closed") for consumer in self._consumers))
        await asyncio.gather(self._publishing.close(), self._asking.close())

    def _check_open(self) -> None:
        if self._closed:
            raise BrokerUnavailable(f"{self._address.shown} was closed here")

    # Publishing, also for consumers that are being closed

    async def _publish(self, publications: Sequence[Publication]) -> None:
        check_taken(publications, await self._offer(publications), self._address.shown)

    async def _offer(self, publications: Sequence[Publication]) -> list[Untaken | None]:
        patience_s = self._address.patience.publish_s
        publisher: Publisher | None = None
        try:
            async with asyncio.timeout(patience_s):
                publisher = await self._publishing.get()
                return await publisher.offer(publications)
        except TimeoutError:
            self.counts.publish_timeouts += 1
            shown = self._address.shown
            if publisher is None:
                raise BrokerUnavailable(f"{shown} could not be reached within {patience_s:g} s") from None
            if publisher.blocked is not None:
                raise BrokerUnavailable(
                    f"{shown} has taken nothing for {patience_s:g} s: {publisher.blocked}"
                ) from None
            # Confirms that are missing for so long may never come, and would fill the window.
            await self._publishing.drop_if(publisher, "it did not confirm in time")
            raise BrokerUnavailable(f"{shown} did not confirm within {patience_s:g} s") from None

    async def _made_publisher(self, connection: Connection) -> Publisher:
        connection.lane.on_blocked = self._note_blocked
        return await Publisher.open(connection)

    def _note_blocked(self, why: str | None) -> None:
        if why is None:
            _log.warning("%s takes messages again", self._address.shown)
            return
        self.counts.blocked += 1
        _log.warning("%s takes no messages now, and publishing waits: %s", self._address.shown, why)

    async def _made_control(self, connection: Connection) -> Control:
        control = Control(connection)
        try:
            await declare(control, self._declared.topology)
        except InvalidRequest as problem:
            _log.error("what was declared does not fit any more, and is left as it is: %s", problem)
        return control
