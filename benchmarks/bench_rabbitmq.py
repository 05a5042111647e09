"""What a message costs over RabbitMQ: confirmed publishing, and consuming with acknowledgement.

A quorum queue on one node; each figure is the best of a few rounds, since whatever else the machine does only
adds. CPU is that of this process, not of RabbitMQ. Beside ours, the same through aio-pika.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from tidewheel.broker.message import Message, Publication
from tidewheel.broker.opening import open_broker
from tidewheel.broker.topology import work_queue, work_topology

MESSAGES = 5_000
BATCH = 500
PREFETCH = 256
ROUNDS = 3
QUEUE = work_queue("default", "bench")
BODY = b'{"kind":"run","namespace":"default","run_id":"order-12345"}'
SERVER = "TIDEWHEEL_TEST_RABBITMQ"


async def measure(what: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do *work*, which handles all messages once, and print the rate and the CPU time of each."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    await work()
    rate = MESSAGES / (time.perf_counter() - began_s)
    cost_us = (time.process_time() - cpu_s) / MESSAGES * 1e6
    RESULTS.setdefault(what, []).append((rate, cost_us))


RESULTS: dict[str, list[tuple[float, float]]] = {}
_ids = itertools.count()


async def ours(url: str) -> None:
    """Measure this project's broker."""
    broker = open_broker(url, store_url="")
    await broker.declare(work_topology("default", ["bench"]))

    async def publish(batch: int) -> None:
        for _ in range(MESSAGES // batch):
            messages = [Message(body=BODY, message_id=str(next(_ids))) for _ in range(batch)]
            await broker.publish([Publication(message=message, routing_key=QUEUE) for message in messages])

    async def consume() -> None:
        async with broker.consume(QUEUE, prefetch=PREFETCH) as deliveries:
            for _ in range(MESSAGES):
                await (await anext(deliveries)).acknowledge()

    await measure(f"publish, {BATCH} at a time", lambda: publish(BATCH))
    await measure("consume and acknowledge", consume)
    await measure("publish, 20 at a time", lambda: publish(20))
    await measure("consume and acknowledge", consume)
    await broker.close()


async def through_aio_pika(url: str) -> None:
    """Measure aio-pika with the same messages."""
    connection = await aio_pika.connect(url)
    channel = await connection.channel()
    await channel.set_qos(PREFETCH)
    queue = await channel.get_queue(QUEUE)

    async def publish() -> None:
        for _ in range(MESSAGES // BATCH):
            messages = [
                aio_pika.Message(BODY, message_id=str(next(_ids)), delivery_mode=2) for _ in range(BATCH)
            ]
            await asyncio.gather(*(channel.default_exchange.publish(message, QUEUE) for message in messages))

    async def consume() -> None:
        everything = asyncio.Event()
        taken = itertools.count(1)

        async def take(message: AbstractIncomingMessage) -> None:
            await message.ack()
            if next(taken) == MESSAGES:
                everything.set()

        tag = await queue.consume(take)
        await everything.wait()
        await queue.cancel(tag)

    await measure(f"aio-pika: publish, {BATCH} at a time", publish)
    await measure("aio-pika: consume and acknowledge", consume)
    await connection.close()


async def rounds(url: str) -> None:
    """Measure everything a few times, and print the best."""
    for _ in range(ROUNDS):
        await ours(url)
        await through_aio_pika(url)
    for what, results in RESULTS.items():
        rate, cost_us = max(rate for rate, _ in results), min(cost for _, cost in results)
        print(f"{what:<45} {rate:>9,.0f} messages/s {cost_us:>8.1f} us CPU a message")


def main() -> None:
    """Measure at the server that is given, or start a private one."""
    url = os.environ.get(SERVER)
    if url is None:
        root = Path(__file__).resolve().parents[1]
        os.chdir(root)
        command = [sys.executable, "-m", "tests.servers", "run", "--rabbitmq", "--", sys.executable, __file__]
        os.execv(sys.executable, command)  # noqa: S606 - this file again, with a server
    print(json.dumps({"python": sys.version.split()[0], "cores": os.cpu_count()}))
    asyncio.run(rounds(url))


if __name__ == "__main__":
    main()
