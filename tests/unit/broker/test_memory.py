"""The memory twin has no clock and no chance of its own."""

from __future__ import annotations

import asyncio

from tidewheel.broker.memory import MemoryBroker
from tidewheel.broker.message import REASON, Message, Publication
from tidewheel.broker.topology import Queue, Topology


class Clock:
    """A clock that is set by hand."""

    now_s = 0.0

    def __call__(self) -> float:
        """Return what it was set to."""
        return self.now_s


def to(queue: str, text: str = "") -> Publication:
    """Address a message."""
    return Publication(message=Message(body=text.encode(), message_id=text), routing_key=queue)


async def test_time_is_what_the_caller_says() -> None:
    """A day passes when the clock says so: nothing expires before, everything after."""
    clock = Clock()
    broker = MemoryBroker(now=clock)
    short = Queue(name="short", ttl_s=86_400.0, dead_letter_queue="dead")
    await broker.declare(Topology(queues=(short, Queue(name="dead"))))
    await broker.publish([to("short")])
    clock.now_s = 86_399.0
    assert await broker.depth("short") == 1

    clock.now_s = 86_401.0

    assert [await broker.depth("short"), await broker.depth("dead")] == [0, 1]


async def test_a_clock_that_stands_still_does_not_spin() -> None:
    """The timer of a deadline that does not come near leaves the loop to others."""
    broker = MemoryBroker(now=Clock())
    await broker.declare(Topology(queues=(Queue(name="short", ttl_s=0.001),)))
    await broker.publish([to("short")])

    async with asyncio.timeout(5):
        for _ in range(20):
            await asyncio.sleep(0.001)

    assert await broker.depth("short") == 1


async def test_idle_consumers_take_turns() -> None:
    """Who waited longest is served first, always the same way."""
    broker = MemoryBroker()
    await broker.declare(Topology(queues=(Queue(name="q"),)))
    taken: list[str] = []

    async def consume(name: str) -> None:
        async with broker.connect().consume("q", prefetch=9) as deliveries:
            async for delivery in deliveries:
                taken.append(name)
                await delivery.acknowledge()

    consumers = [asyncio.ensure_future(consume(name)) for name in "abc"]
    await asyncio.sleep(0)
    for _ in range(6):
        await broker.publish([to("q")])
        await asyncio.sleep(0)
    for consumer in consumers:
        consumer.cancel()
    await asyncio.wait(consumers)

    assert taken == list("abcabc")


async def test_a_closed_connection_gives_back_and_leaves_the_others() -> None:
    """As when one process dies: the rest goes on, and gets what it held."""
    one = MemoryBroker()
    other = one.connect()
    await one.declare(Topology(queues=(Queue(name="q"),)))
    await one.publish([to("q", "x")])
    async with one.consume("q", prefetch=1) as mine, other.consume("q", prefetch=1) as theirs:
        await anext(mine)

        await one.close()

        assert (await anext(theirs)).earlier_deliveries == 1


async def test_deadlines_of_what_is_gone_are_forgotten() -> None:
    """Messages that were settled long before their time leave nothing behind."""
    broker = MemoryBroker()
    await broker.declare(Topology(queues=(Queue(name="q", ttl_s=3600.0),)))

    async with broker.consume("q", prefetch=1) as deliveries:
        for _ in range(2000):
            await broker.publish([to("q")])
            await (await anext(deliveries)).acknowledge()

    assert len(broker._queues._deadlines) < 600


async def test_a_broker_outlives_the_loop_it_was_used_in() -> None:
    """Its timer moves to whichever loop uses it, so that one process can share it."""
    broker = MemoryBroker()
    dead = Queue(name="dead")
    short = Queue(name="short", ttl_s=0.05, dead_letter_queue="dead")

    def in_another_loop() -> None:
        async def publish() -> None:
            await broker.declare(Topology(queues=(short, dead)))
            await broker.publish([to("short", "x")])

        asyncio.run(publish())

    await asyncio.get_running_loop().run_in_executor(None, in_another_loop)

    async with asyncio.timeout(5), broker.consume("dead", prefetch=1) as deliveries:
        assert (await anext(deliveries)).message.headers[REASON] == "expired"
