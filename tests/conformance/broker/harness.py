"""What the broker tests share: a place with queues that several connections reach, and short words for it."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from tidewheel.broker.memory import MemoryBroker
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.opening import open_broker
from tidewheel.broker.protocol import Broker, Delivery

#: Nothing here takes nearly as long, unless it never comes.
PATIENCE_S = 10.0
#: Long enough for a message to come that must not.
QUIET_S = 0.15

_ids = itertools.count()


class Place:
    """Somewhere that several connections share: a memory broker, a file, or a server at *url*."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._shared = MemoryBroker()
        self._brokers = AsyncExitStack()

    async def connect(self) -> Broker:
        """Return a broker of its own, as another process would open it."""
        broker: Broker = (
            self._shared.connect() if self.url == "memory://" else open_broker(self.url, store_url="")
        )
        self._brokers.push_async_callback(broker.close)
        return broker

    async def close(self) -> None:
        """Close every connection, also those that were closed before."""
        await self._brokers.aclose()


def message(text: str = "hello", *, expires_s: float | None = None) -> Message:
    """Make a message with this body and an id of its own."""
    return Message(body=text.encode(), message_id=f"m{next(_ids)}", expires_s=expires_s)


def to(key: str, text: str = "hello", *, exchange: str = "", expires_s: float | None = None) -> Publication:
    """Address a message."""
    return Publication(message=message(text, expires_s=expires_s), routing_key=key, exchange=exchange)


def text_of(delivery: Delivery) -> str:
    """Return what the message says."""
    return delivery.message.body.decode()


async def next_of(deliveries: AsyncIterator[Delivery]) -> Delivery:
    """Wait for the next delivery, but not for ever."""
    return await asyncio.wait_for(anext(deliveries), PATIENCE_S)


async def texts_of(deliveries: AsyncIterator[Delivery], count: int) -> list[str]:
    """Take and acknowledge *count* messages."""
    texts = []
    for _ in range(count):
        delivery = await next_of(deliveries)
        await delivery.acknowledge()
        texts.append(text_of(delivery))
    return texts


async def comes_nothing(deliveries: AsyncIterator[Delivery]) -> bool:
    """Tell whether nothing is delivered for a while."""
    waiting = asyncio.ensure_future(anext(deliveries))
    done, _ = await asyncio.wait([waiting], timeout=QUIET_S)
    if not done:
        waiting.cancel()
        await asyncio.wait([waiting])
    return not done


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until *holds* does; it is asked again and again since nothing announces it."""
    async with asyncio.timeout(PATIENCE_S):
        while not await holds():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)


async def depth_becomes(broker: Broker, queue: str, depth: int) -> None:
    """Wait until *depth* messages wait in *queue*: what was just given back may still be on its way."""

    async def is_so() -> bool:
        return await broker.depth(queue) == depth

    await eventually(is_so)


async def start_program(*arguments: str) -> asyncio.subprocess.Process:
    """Run ``program.py`` as another process; it answers with lines."""
    program = Path(__file__).with_name("program.py")
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


async def line_of(process: asyncio.subprocess.Process) -> str:
    """Return the next line that *process* prints."""
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
    return line.decode().strip()
