"""The channel of one consumer: what is said on it, in an order that costs no message a delivery.

RabbitMQ counts what was on its way when a consumer was cancelled as delivered. So the last acknowledgements
are sent after the cancel, since until then they would bring new deliveries, and the cancel waits until
nothing is on its way.

Nothing is written on a channel that is closed, or may be: RabbitMQ would close the whole connection for it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiormq.abc import AbstractChannel
from aiormq.exceptions import ChannelNotFoundEntity

from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.rabbitmq.connection import Connection, close_channel, our_errors
from tidewheel.broker.rabbitmq.lane import Listener
from tidewheel.broker.rabbitmq.settling import Unsettled

#: How long the broker may take to cancel a consumer.
CANCEL_MAX_S: Final = 5.0
#: When nothing was sent or delivered for this long, nothing is taken to be on its way.
QUIET_S: Final = 0.05
#: The name of a consumer is its channel's own affair, and there is one on each.
TAG: Final = "tidewheel"


class ConsumerChannel:
    """A channel with one consumer of *queue*, and at most *prefetch* unsettled deliveries."""

    def __init__(self, connection: Connection, channel: AbstractChannel, queue: str, prefetch: int) -> None:
        self.connection = connection
        self._channel = channel
        self._lane = connection.lane
        self._queue = queue
        self._prefetch = prefetch
        self._loop = asyncio.get_running_loop()
        self._unsettled = Unsettled(channel.number)
        self._is_open = True
        self._is_consuming = False
        self._holds_back = False
        self._moved_at_s = self._loop.time()

    async def begin(self, listener: Listener) -> None:
        """Let *listener* hear what is delivered from now on, or raise ``BrokerUnavailable``."""
        self._lane.listen(self._channel.number, listener)
        with our_errors(self.connection.address, f"consuming {self._queue!r}"):
            try:
                async with asyncio.timeout(self.connection.address.patience.answer_s):
                    await self._channel.basic_qos(prefetch_count=self._prefetch)
                    self._is_consuming = True
                    await self._channel.basic_consume(self._queue, _never_called, consumer_tag=TAG)
            except ChannelNotFoundEntity:
                raise BrokerUnavailable(
                    f"there is no queue {self._queue!r}; declare it before consuming"
                ) from None

    async def count_consumers(self) -> int:
        """Ask the broker how many consumers the queue has, or raise ``BrokerUnavailable``."""
        address = self.connection.address
        with our_errors(address, f"consuming {self._queue!r}"):
            async with asyncio.timeout(address.patience.answer_s):
                return (await self._channel.queue_declare(self._queue, passive=True)).consumer_count or 0

    def deliver(self, tag: int) -> None:
        """Note that *tag* was delivered."""
        self._moved_at_s = self._loop.time()
        self._unsettled.deliver(tag)

    def acknowledge(self, tag: int) -> None:
        """Acknowledge *tag* soon, together with what else is acknowledged until then."""
        if self._unsettled.acknowledge(tag):
            self._loop.call_soon(self._flush)

    def reject(self, tag: int, *, requeue: bool) -> None:
        """Give *tag* back, or let the broker make a dead letter of it."""
        self._write(self._unsettled.reject(tag, requeue=requeue))

    def hold_back(self) -> None:
        """Acknowledge nothing until told to: a cancel is to come."""
        self._holds_back = True

    async def cancel(self, *, is_counted: bool) -> bool:
        """Let no more come; call ``hold_back`` before. False if nobody knows whether more comes.

        Where the queue *is_counted*, nothing may be on its way: the prefetch is used up, or it was quiet.
        """
        if not self._is_open or not self._is_consuming or self._lane.gone:
            return False
        self._is_consuming = False
        while is_counted and self._unsettled.outstanding < self._prefetch:
            quiet_s = self._loop.time() - self._moved_at_s
            if quiet_s >= QUIET_S:
                break
            await asyncio.sleep(QUIET_S - quiet_s)
        try:
            with our_errors(self.connection.address):
                async with asyncio.timeout(CANCEL_MAX_S):
                    await self._channel.basic_cancel(TAG)
        except BrokerUnavailable:
            self.lost()  # aiormq closes a channel whose question was not answered
            return False
        return True

    def acknowledge_again(self) -> None:
        """Send the acknowledgements that were held back, and those to come."""
        self._holds_back = False
        self._flush()

    async def close(self, listener: Listener) -> None:
        """Say what was not said yet, give back everything else, and let *listener* hear no more."""
        self.acknowledge_again()
        self._write(self._unsettled.give_back())
        self._is_open = False
        await close_channel(self._channel)
        self._lane.leave(self._channel.number, listener)

    def lost(self) -> None:
        """The channel is gone, or going; the broker gives back what was unsettled."""
        self._is_open = False

    def _flush(self) -> None:
        if not self._holds_back:
            self._write(self._unsettled.take_frames())

    def _write(self, frames: bytes) -> None:
        if self._is_open and frames:
            self._moved_at_s = self._loop.time()
            self._lane.write(frames)


async def _never_called(_: Any) -> None:
    """Stand where aiormq wants a callback: deliveries take the lane."""
