"""A consumer: a channel of its own on the consuming connection, and what the program sees of it.

Whatever ends it, its iterator ends with ``BrokerUnavailable``: the connection, the channel or the queue is
gone, the broker cancelled it, or it asked whether it is still a consumer and did not hear yes.

What was fetched ahead and never looked at must not come nearer to its delivery limit when a consumer
leaves, and RabbitMQ counts everything it gets back. So that is published again as new, and then
acknowledged. RabbitMQ also counts what was on its way when the consumer was cancelled. So the last
acknowledgements are sent after the cancel: until then they would bring new deliveries.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from aiormq.abc import AbstractChannel
from aiormq.exceptions import ChannelNotFoundEntity

from tidewheel.broker.errors import BrokerUnavailable, Unroutable
from tidewheel.broker.message import DELIVERED_TOO_OFTEN, Publication, dead_letter
from tidewheel.broker.rabbitmq.connection import Connection, close_channel, our_errors
from tidewheel.broker.rabbitmq.delivery import RabbitDelivery
from tidewheel.broker.rabbitmq.frames import BASIC_CANCEL, BASIC_DELIVER, CHANNEL_CLOSE, METHOD, read_closing
from tidewheel.broker.rabbitmq.headers import CARRIED
from tidewheel.broker.rabbitmq.incoming import Assembly, Incoming
from tidewheel.broker.rabbitmq.settling import Unsettled
from tidewheel.broker.topology import Queue

#: How long giving everything back may take when a consumer is closed.
END_MAX_S: Final = 5.0
#: When nothing was sent or delivered for this long, nothing is taken to be on its way.
QUIET_S: Final = 0.05
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

    def __init__(self, source: Source, connection: Connection, channel: AbstractChannel) -> None:
        self.queue = source.queue
        self._source = source
        self._connection = connection
        self._channel = channel
        self._lane = connection.lane
        self._loop = asyncio.get_running_loop()
        self._unsettled = Unsettled(channel.number)
        self._arrived: deque[RabbitDelivery] = deque()
        self._changed = asyncio.Event()
        self._failure: BrokerUnavailable | None = None
        self._is_channel_open = True
        self._holds_back = False
        self._moved_at_s = self._loop.time()
        self._assembly = Assembly()
        self._burying: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, source: Source, connection: Connection) -> RabbitConsumer:
        """Begin to receive, or raise ``BrokerUnavailable``."""
        channel = await connection.open_channel()
        consumer = cls(source, connection, channel)
        # From here on deliveries may come at any moment.
        connection.lane.listen(channel.number, consumer)
        try:
            await consumer._begin()
        except BaseException:
            connection.lane.leave(channel.number, consumer)
            await close_channel(channel)
            raise
        return consumer

    async def _begin(self) -> None:
        with our_errors(self._connection.address, f"consuming {self.queue!r}"):
            try:
                async with asyncio.timeout(self._connection.address.patience.answer_s):
                    await self._channel.basic_qos(prefetch_count=self._source.prefetch)
                    await self._channel.basic_consume(self.queue, _never_called, consumer_tag=_TAG)
            except ChannelNotFoundEntity:
                raise BrokerUnavailable(
                    f"there is no queue {self.queue!r}; declare it before consuming"
                ) from None
        self._watching = asyncio.create_task(self._watch(), name=f"watch {self.queue}")

    @property
    def is_over(self) -> bool:
        """Whether it has ended or was told to."""
        return self._failure is not None

    def __aiter__(self) -> AsyncIterator[RabbitDelivery]:
        """Return itself: a consumer is its own iterator."""
        return self

    async def __anext__(self) -> RabbitDelivery:
        """Wait for the next message. Being cancelled here costs none: it is taken in one go."""
        while True:
            if self._failure is not None:
                raise self._failure
            if self._arrived:
                return self._arrived.popleft()
            self._changed.clear()
            await self._changed.wait()

    async def close(self, why: str) -> None:
        """Stop, and return when what is unsettled was given back. May be called twice."""
        self._fail(why)
        if self._ending is None:
            self._holds_back = True
            self._ending = asyncio.create_task(self._end(), name=f"end {self.queue}")
        await asyncio.wait([self._ending])

    # Called by deliveries

    def acknowledge(self, tag: int) -> None:
        """Acknowledge soon, together with what else is acknowledged until then."""
        if self._unsettled.acknowledge(tag):
            self._loop.call_soon(self._flush)

    def release(self, tag: int) -> None:
        """Give it back."""
        self._write(self._unsettled.reject(tag, requeue=True))

    async def bury(self, delivery: RabbitDelivery, reason: str) -> None:
        """Publish a dead letter, then acknowledge; whoever waits for this may leave, it is finished."""
        task = asyncio.create_task(self._bury(delivery, reason), name=f"bury {self.queue}")
        self._burying.add(task)
        task.add_done_callback(self._forget_burying)
        await asyncio.shield(task)

    def _forget_burying(self, task: asyncio.Task[None]) -> None:
        self._burying.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked was told, or has left

    async def _bury(self, delivery: RabbitDelivery, reason: str) -> None:
        declared = self._source.declared
        if declared is None:
            # Nobody here knows where its dead letters go: RabbitMQ does, but it cannot add the reason.
            _log.warning("a message on %s is a dead letter: %s", self.queue, reason)
            self._write(self._unsettled.reject(delivery.tag, requeue=False))
            return
        if declared.dead_letter_queue is not None:
            message = dead_letter(delivery.message, reason=reason[:REASON_MAX], queue=self.queue)
            dead = Publication(message=message, routing_key=declared.dead_letter_queue)
            try:
                await self._source.publish([dead])
            except Unroutable as problem:
                _log.warning("a dead letter of %s is dropped: %s", self.queue, problem)
        self.acknowledge(delivery.tag)

    def _flush(self) -> None:
        if not self._holds_back:
            self._write(self._unsettled.take_frames())

    def _write(self, frames: bytes) -> None:
        """Send *frames* while the channel is open; on a closed one they would cost the whole connection."""
        if self._is_channel_open and frames:
            self._moved_at_s = self._loop.time()
            self._lane.write(frames)

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
        self._is_channel_open = False
        self._lane.leave(self._channel.number, self)
        self._fail(f"{self._connection.address.shown}, consuming {self.queue!r}: {why}")

    def _arrive(self, incoming: Incoming) -> None:
        self._moved_at_s = self._loop.time()
        self._unsettled.deliver(incoming.tag)
        delivery = RabbitDelivery(self, incoming)
        limit = self._source.declared.delivery_limit if self._source.declared else None
        if limit is not None and incoming.earlier_deliveries >= limit:
            # RabbitMQ does not know how often it was delivered before it was published again.
            self._loop.create_task(delivery.bury(DELIVERED_TOO_OFTEN)).add_done_callback(_look_away)
            return
        self._arrived.append(delivery)
        self._changed.set()

    def _fail(self, why: str) -> None:
        """Let the iterator end with the first failure."""
        self._failure = self._failure or BrokerUnavailable(why)
        self._changed.set()

    # Watching and ending

    async def _watch(self) -> None:
        """Ask again and again whether this is still a consumer: one that is not would wait for ever."""
        patience = self._connection.address.patience
        while self._failure is None:
            await asyncio.sleep(patience.check_s)
            try:
                with our_errors(self._connection.address, f"consuming {self.queue!r}"):
                    async with asyncio.timeout(patience.answer_s):
                        answer = await self._channel.queue_declare(self.queue, passive=True)
            except BrokerUnavailable as problem:
                self._fail(str(problem))
                return
            if not answer.consumer_count:
                self._fail(f"RabbitMQ says that {self.queue!r} has no consumer, and this is one")

    async def _end(self) -> None:
        """Give back what is unsettled, what nobody looked at as not delivered, and close the channel."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        with suppress(TimeoutError, BrokerUnavailable):
            async with asyncio.timeout(END_MAX_S):
                if self._burying:
                    await asyncio.wait(self._burying)
                if self._is_channel_open and self._lane.gone is None:
                    await self._cancel()
                    await self._hand_on_unseen()
        self._write(self._unsettled.take_frames() + self._unsettled.give_back())
        if self._is_channel_open:
            self._is_channel_open = False
            await close_channel(self._channel)
            self._lane.leave(self._channel.number, self)

    async def _cancel(self) -> None:
        """Let no more come, when nothing is on its way: the prefetch is used up, or it has been quiet."""
        while self._source.is_counted and self._unsettled.outstanding < self._source.prefetch:
            quiet_s = self._loop.time() - self._moved_at_s
            if quiet_s >= QUIET_S:
                break
            await asyncio.sleep(QUIET_S - quiet_s)
        with our_errors(self._connection.address):
            await self._channel.basic_cancel(_TAG)

    async def _hand_on_unseen(self) -> None:
        """Publish again what nobody looked at, and acknowledge it: then it was not delivered."""
        unseen, self._arrived = self._arrived, deque()
        if not unseen or not self._source.is_counted:
            return
        try:
            await self._source.publish([_as_new(delivery) for delivery in unseen])
        except Unroutable:  # the queue is gone, and they with it
            return
        except BrokerUnavailable as problem:
            _log.warning("%d messages of %s go back as delivered: %s", len(unseen), self.queue, problem)
            return
        for delivery in unseen:
            self._unsettled.acknowledge(delivery.tag)


_TAG: Final = "tidewheel"


def _as_new(delivery: RabbitDelivery) -> Publication:
    """Address *delivery* to its own queue again; how often it was delivered goes with it."""
    message = delivery.message
    if delivery.earlier_deliveries:
        carried = {**message.headers, CARRIED: str(delivery.earlier_deliveries)}
        message = msgspec.structs.replace(message, headers=carried)
    return Publication(message=message, routing_key=delivery.queue)


async def _never_called(_: Any) -> None:
    """Stand where aiormq wants a callback: deliveries take the lane."""


def _look_away(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # the message goes back with the others
