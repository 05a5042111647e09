"""A consumer: what the program sees of a channel that delivers.

Whatever ends it, its iterator ends with ``BrokerUnavailable``: the connection, the channel or the queue is
gone, the broker cancelled it, or it asked whether it is still a consumer and did not hear yes.

What was fetched ahead and never looked at must not come nearer to its delivery limit when a consumer
leaves, and RabbitMQ counts everything it gets back. So that is published again as new, and then
acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import msgspec

from tidewheel.broker.errors import BrokerUnavailable, Unroutable
from tidewheel.broker.message import DELIVERED_TOO_OFTEN, Publication, again, dead_letter
from tidewheel.broker.rabbitmq.connection import Connection
from tidewheel.broker.rabbitmq.consumer_channel import ConsumerChannel
from tidewheel.broker.rabbitmq.delivery import RabbitDelivery
from tidewheel.broker.rabbitmq.frames import BASIC_CANCEL, BASIC_DELIVER, CHANNEL_CLOSE, METHOD, read_closing
from tidewheel.broker.rabbitmq.headers import CARRIED
from tidewheel.broker.rabbitmq.incoming import Assembly, Incoming
from tidewheel.broker.topology import Queue

#: How long each part of giving everything back may take when a consumer is closed.
END_MAX_S: Final = 5.0
#: A longer reason is cut: it travels in a header.
REASON_MAX: Final = 2000

_log = logging.getLogger("tidewheel.broker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a consumer takes from: the queue as declared, if this process declared it, and how to publish."""

    queue: str
    prefetch: int
    declared: Queue | None
    publish: Callable[[Sequence[Publication]], Awaitable[None]]

    @property
    def is_counted(self) -> bool:
        """Whether RabbitMQ counts what it gets back, as quorum queues do."""
        return self.declared is None or self.declared.kind == "quorum"


class RabbitConsumer:
    """Receives from one queue; ``open`` makes one, ``close`` ends it."""

    def __init__(self, source: Source, channel: ConsumerChannel) -> None:
        self.queue = source.queue
        self._source = source
        self._channel = channel
        self._shown = channel.connection.address.shown
        self._assembly = Assembly()
        self._arrived: deque[RabbitDelivery] = deque()
        self._changed = asyncio.Event()
        #: Set when nothing more is to be handed out; then a failure says whether it ended by itself.
        self._over = asyncio.Event()
        self._failure: BrokerUnavailable | None = None
        self._burying: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, source: Source, connection: Connection) -> RabbitConsumer:
        """Begin to receive, or raise ``BrokerUnavailable``."""
        channel = ConsumerChannel(connection, await connection.open_channel(), source.queue, source.prefetch)
        consumer = cls(source, channel)
        try:
            await channel.begin(consumer)
        except BaseException:
            await channel.close(consumer)
            raise
        consumer._watching = asyncio.create_task(consumer._watch(), name=f"watch {source.queue}")
        return consumer

    @property
    def is_over(self) -> bool:
        """Whether nothing can be settled any more: it has failed, or was closed."""
        return self._failure is not None

    def __aiter__(self) -> Self:
        """Return itself: a consumer is its own iterator."""
        return self

    async def __anext__(self) -> RabbitDelivery:
        """Wait for the next message. Being cancelled here costs none: it is taken in one go."""
        while True:
            if self._failure is not None:
                raise self._failure
            if self._over.is_set():
                raise StopAsyncIteration
            if self._arrived:
                return self._arrived.popleft()
            self._changed.clear()
            await self._changed.wait()

    async def stop(self) -> None:
        """Fetch no more, and give back what was only fetched ahead; what is in hand can still be settled."""
        self._over.set()
        self._changed.set()
        if self._stopping is None:
            self._channel.hold_back()
            self._stopping = asyncio.create_task(self._stop(), name=f"stop {self.queue}")
        await asyncio.wait([self._stopping])

    async def close(self, why: str) -> None:
        """Stop, and return when what is unsettled was given back. May be called twice."""
        self._fail(why)
        if self._ending is None:
            if self._stopping is None:
                self._channel.hold_back()
            self._ending = asyncio.create_task(self._end(), name=f"end {self.queue}")
        await asyncio.wait([self._ending])

    # Called by deliveries

    def acknowledge(self, tag: int) -> None:
        """Acknowledge soon."""
        self._channel.acknowledge(tag)

    def release(self, tag: int) -> None:
        """Give it back."""
        self._channel.reject(tag, requeue=True)

    async def bury(self, delivery: RabbitDelivery, reason: str) -> None:
        """Publish a dead letter, then acknowledge; whoever waits for this may leave, it is finished."""
        await asyncio.shield(self._begin_to_bury(delivery, reason))

    def _begin_to_bury(self, delivery: RabbitDelivery, reason: str) -> asyncio.Task[None]:
        task = asyncio.create_task(self._bury(delivery, reason), name=f"bury {self.queue}")
        self._burying.add(task)
        task.add_done_callback(self._forget_burying)
        return task

    def _forget_burying(self, task: asyncio.Task[None]) -> None:
        self._burying.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked was told, or has left; the message goes back with the others

    async def _bury(self, delivery: RabbitDelivery, reason: str) -> None:
        declared = self._source.declared
        if declared is None:
            # Nobody here knows where its dead letters go: RabbitMQ does, but it cannot add the reason.
            _log.warning("a message on %s is a dead letter: %s", self.queue, reason)
            self._channel.reject(delivery.tag, requeue=False)
            return
        if declared.dead_letter_queue is not None:
            message = dead_letter(
                delivery.message, reason=reason[:REASON_MAX], queue=self.queue, key=delivery.routing_key
            )
            dead = Publication(message=message, routing_key=declared.dead_letter_queue)
            try:
                await self._source.publish([dead])
            except Unroutable as problem:
                _log.warning("a dead letter of %s is dropped: %s", self.queue, problem)
        self._channel.acknowledge(delivery.tag)

    # Called by the lane

    def hear(self, kind: int, payload: bytes) -> bool:
        """Take what is delivered; the rest is aiormq's, but some of it ends this consumer."""
        if kind == METHOD:
            return self._hear_method(payload)
        incoming = self._assembly.add(kind, payload)
        if incoming is not None:
            self._arrive(incoming)
        return True

    def _hear_method(self, payload: bytes) -> bool:
        method = payload[:4]
        if method == BASIC_DELIVER:
            self._assembly.begin(payload)
            return True
        if method == BASIC_CANCEL:
            self._fail(f"RabbitMQ cancelled the consumer of {self.queue!r}: the queue is gone, or has moved")
        elif method == CHANNEL_CLOSE:
            self.lost(f"the broker closed the channel: {read_closing(payload).text}")
        return False

    def lost(self, why: str) -> None:
        """The channel is gone; the broker gives back what was unsettled."""
        self._channel.lost()
        self._fail(f"{self._shown}, consuming {self.queue!r}: {why}")

    def _arrive(self, incoming: Incoming) -> None:
        self._channel.deliver(incoming.tag)
        delivery = RabbitDelivery(self, incoming)
        limit = self._source.declared.delivery_limit if self._source.declared else None
        if limit is not None and incoming.earlier_deliveries >= limit:
            # RabbitMQ does not know how often it was delivered before it was published again.
            self._begin_to_bury(delivery, DELIVERED_TOO_OFTEN)
            return
        self._arrived.append(delivery)
        self._changed.set()

    def _fail(self, why: str) -> None:
        """Let the iterator end with the first failure."""
        self._failure = self._failure or BrokerUnavailable(why)
        self._over.set()
        self._changed.set()

    # Watching and ending

    async def _watch(self) -> None:
        """Ask again and again whether this is still a consumer: one that is not would wait for ever."""
        check_s = self._channel.connection.address.patience.check_s
        while not self._over.is_set():
            try:
                async with asyncio.timeout(check_s):
                    await self._over.wait()
            except TimeoutError:
                await self._check()

    async def _check(self) -> None:
        try:
            count = await self._channel.count_consumers()
        except BrokerUnavailable as problem:
            self._channel.lost()  # aiormq closes a channel whose question was not answered
            self._fail(str(problem))
            return
        if not count:
            self._fail(f"RabbitMQ says that {self.queue!r} has no consumer, and this is one")

    async def _stop(self) -> None:
        """Let no more come, and hand on what nobody looked at."""
        if self._watching is not None:
            await asyncio.wait([self._watching])
        if await self._channel.cancel(is_counted=self._source.is_counted):
            await self._hand_on_unseen()
        self._channel.acknowledge_again()

    async def _hand_on_unseen(self) -> None:
        """Publish again what nobody looked at, and acknowledge it: then it was not delivered.

        Where messages are taken in order they keep their places instead: they go back with what is in hand,
        when the channel is closed, and were delivered.
        """
        if self._source.declared is not None and self._source.declared.single_consumer:
            return
        unseen, self._arrived = self._arrived, deque()
        is_handed_on = self._source.is_counted and bool(unseen)
        if is_handed_on:
            try:
                async with asyncio.timeout(END_MAX_S):
                    await self._source.publish([_as_new(delivery) for delivery in unseen])
            except (BrokerUnavailable, Unroutable, TimeoutError) as problem:
                is_handed_on = False
                if not isinstance(problem, Unroutable):  # else the queue is gone, and they with it
                    _log.warning(
                        "%d messages of %s go back as delivered: %s", len(unseen), self.queue, problem
                    )
        for delivery in unseen:
            if is_handed_on:
                self._channel.acknowledge(delivery.tag)
            else:
                self._channel.reject(delivery.tag, requeue=True)

    async def _end(self) -> None:
        """Give back what is unsettled, what nobody looked at as not delivered, and close the channel."""
        if self._burying:
            await asyncio.wait(self._burying, timeout=END_MAX_S)
        await self.stop()
        await self._channel.close(self)


def _as_new(delivery: RabbitDelivery) -> Publication:
    """Address *delivery* to its own queue again; its key and how often it was delivered go with it."""
    message = delivery.message
    if delivery.earlier_deliveries:
        carried = {**message.headers, CARRIED: str(delivery.earlier_deliveries)}
        message = msgspec.structs.replace(message, headers=carried)
    return again(message, key=delivery.routing_key, queue=delivery.queue)
