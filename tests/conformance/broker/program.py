"""Another process that uses a broker: ``program.py declare|publish|hold|work URL ARGUMENT``.

It answers on standard output, a line at a time, and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import sys

from tidewheel.broker.message import Message, Publication
from tidewheel.broker.opening import open_broker
from tidewheel.broker.protocol import Broker
from tidewheel.broker.topology import Queue, Topology


def say(*words: str) -> None:
    """Answer with a line."""
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


async def declare(broker: Broker, queue: str) -> None:
    """Wait for a line, then declare *queue*."""
    say("ready")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await broker.declare(Topology(queues=(Queue(name=queue),)))
    say("declared")


async def publish(broker: Broker, texts: str) -> None:
    """Publish one message for each of *texts*, all to ``plain``."""
    for text in texts.split(","):
        message = Message(body=text.encode(), message_id=text)
        await broker.publish([Publication(message=message, routing_key="plain")])
    say("published")


async def hold(broker: Broker, queue: str) -> None:
    """Take messages and never settle them, until killed."""
    async with broker.consume(queue, prefetch=1) as deliveries:
        async for delivery in deliveries:
            say("holding", delivery.message.body.decode())


async def work(broker: Broker, queue: str) -> None:
    """Take messages, say so, and acknowledge them, until standard input ends."""

    async def take() -> None:
        async with broker.consume(queue, prefetch=4) as deliveries:
            say("ready")
            async for delivery in deliveries:
                await delivery.acknowledge()
                say("took", delivery.message.body.decode())

    taking = asyncio.ensure_future(take())
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    taking.cancel()
    await asyncio.wait([taking])


async def main(act: str, url: str, argument: str) -> None:
    """Do one of the above."""
    broker = open_broker(url, store_url="")
    try:
        acts = {"declare": declare, "publish": publish, "hold": hold, "work": work}
        await acts[act](broker, argument)
    finally:
        await broker.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
