"""One channel for everything that asks the broker something and waits for the answer.

RabbitMQ closes a channel for many an answer that is a "no". So this channel carries neither messages nor
their settlement, and is opened again when it is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aio_pika.abc import AbstractChannel
from aiormq.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed

from tidewheel.broker.rabbitmq.connection import Connection, close_channel, our_errors

_T = TypeVar("_T")

#: What the broker refuses because of what was asked, not because of how it is: the caller says what it means.
REFUSALS = (ChannelNotFoundEntity, ChannelPreconditionFailed)


class Control:
    """Asks over one connection, one question at a time."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._channel: AbstractChannel | None = None
        self._turn = asyncio.Lock()

    async def ask(self, question: Callable[[AbstractChannel], Awaitable[_T]], doing: str = "") -> _T:
        """Return the answer. Raises ``BrokerUnavailable``, or one of ``REFUSALS`` as it is."""
        async with self._turn:
            channel = self._channel or await self.connection.open_control()
            self._channel = None  # until it is known to have survived
            try:
                answer = await self._bounded(question, channel, doing)
            except BaseException:
                await close_channel(channel)
                raise
            self._channel = channel
            return answer

    async def _bounded(
        self, question: Callable[[AbstractChannel], Awaitable[_T]], channel: AbstractChannel, doing: str
    ) -> _T:
        address = self.connection.address
        refusal: Exception
        with our_errors(address, doing):
            try:
                async with asyncio.timeout(address.patience.answer_s):
                    return await question(channel)
            except REFUSALS as error:
                refusal = error
        raise refusal

    async def exists(self, question: Callable[[AbstractChannel], Awaitable[object]]) -> bool:
        """Tell whether what a passive *question* asks for is there."""
        try:
            await self.ask(question)
        except ChannelNotFoundEntity:
            return False
        return True


async def look_for_exchange(channel: AbstractChannel, name: str) -> None:
    """Raise ``ChannelNotFoundEntity`` if there is no such exchange."""
    await channel.get_exchange(name, ensure=True)


async def look_for_queue(channel: AbstractChannel, name: str) -> int:
    """Return how many messages wait in a queue, or raise ``ChannelNotFoundEntity``."""
    queue = await channel.get_queue(name, ensure=True)
    return queue.declaration_result.message_count or 0
