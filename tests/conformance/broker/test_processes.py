"""Processes share a broker: what one leaves, another finds, however it left."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from tests.conformance.broker.harness import (
    PATIENCE_S,
    Place,
    comes_nothing,
    line_of,
    next_of,
    start_program,
    text_of,
    texts_of,
    to,
)
from tidewheel.broker.message import REASON
from tidewheel.broker.protocol import Broker
from tidewheel.broker.topology import Queue, Topology


@pytest.fixture
async def broker(shared_place: Place) -> Broker:
    """A connection, with a queue of limit two, its dead letters, and a plain one."""
    connected = await shared_place.connect()
    work = Queue(name="work", delivery_limit=2, dead_letter_queue="work.dlq")
    await connected.declare(Topology(queues=(work, Queue(name="work.dlq"), Queue(name="plain"))))
    return connected


async def test_a_killed_process_gives_back_its_messages_at_once(shared_place: Place, broker: Broker) -> None:
    """Nobody waits for a lease: the next who looks sees that the process is dead, even unreaped."""
    await broker.publish([to("plain", "survives"), to("plain", "second")])
    holder = await start_program("hold", shared_place.url, "plain")
    assert await line_of(holder) == "holding survives"
    async with broker.consume("plain", prefetch=2) as deliveries:
        assert await texts_of(deliveries, 1) == ["second"]
        assert await comes_nothing(deliveries)

        holder.kill()
        killed_s = time.monotonic()
        delivery = await next_of(deliveries)

        assert time.monotonic() - killed_s < 1.0
        assert (text_of(delivery), delivery.earlier_deliveries) == ("survives", 1)
    await holder.wait()


async def test_a_message_that_kills_its_process_is_buried(shared_place: Place, broker: Broker) -> None:
    """Dying counts as a delivery, so a message cannot kill one process after the other for ever."""
    await broker.publish([to("work", "killer")])

    for _ in range(2):
        holder = await start_program("hold", shared_place.url, "work")
        assert await line_of(holder) == "holding killer"
        holder.kill()
        await holder.wait()

    async with broker.consume("work.dlq", prefetch=1) as dead_letters:
        dead = await next_of(dead_letters)
        assert (text_of(dead), dead.message.headers[REASON]) == ("killer", "delivery-limit")


async def test_messages_outlive_every_process(shared_place: Place, broker: Broker) -> None:
    """With nobody connected, what was published and what was declared is still there."""
    publisher = await start_program("publish", shared_place.url, "1,2,3")
    assert await line_of(publisher) == "published"
    await publisher.wait()
    await broker.close()

    other = await shared_place.connect()

    async with other.consume("plain", prefetch=1) as deliveries:
        assert await texts_of(deliveries, 3) == ["1", "2", "3"]


async def test_another_process_wakes_a_consumer(shared_place: Place, broker: Broker) -> None:
    """A consumer that waits notices what another process publishes."""
    async with broker.consume("plain", prefetch=1) as deliveries:
        assert await comes_nothing(deliveries)
        publisher = await start_program("publish", shared_place.url, "from afar")
        assert await line_of(publisher) == "published"

        published_s = time.monotonic()
        delivery = await next_of(deliveries)

        assert time.monotonic() - published_s < 2.0
        assert text_of(delivery) == "from afar"
        await publisher.wait()


async def test_processes_may_declare_at_the_same_time(shared_place: Place) -> None:
    """Whoever comes first makes what is not there, a file too; the others find it made."""
    declarers = [await start_program("declare", shared_place.url, f"q{n}") for n in range(4)]
    for declarer in declarers:
        assert await line_of(declarer) == "ready"

    answers = await asyncio.gather(*(declarer.communicate(b"go\n") for declarer in declarers))

    assert [out for out, _ in answers] == [b"declared\n"] * 4
    broker = await shared_place.connect()
    await broker.publish([to(f"q{n}") for n in range(4)])


async def test_processes_publish_side_by_side(shared_place: Place, broker: Broker) -> None:
    """Each waits for the other's transaction; nothing is lost, and each one's order is kept."""
    names = [[f"{letter}{n}" for n in range(50)] for letter in "abc"]
    publishers = [await start_program("publish", shared_place.url, ",".join(batch)) for batch in names]
    async with broker.consume("plain", prefetch=16) as deliveries:
        received = await texts_of(deliveries, 150)
    for publisher in publishers:
        await publisher.communicate(b"")

    assert [[text for text in received if text[0] == letter] for letter in "abc"] == names


async def test_processes_share_a_queue_without_doubles(shared_place: Place, broker: Broker) -> None:
    """Each message is taken by one process."""
    workers = [await start_program("work", shared_place.url, "plain") for _ in range(2)]
    for worker in workers:
        assert await line_of(worker) == "ready"

    for start in range(0, 100, 10):
        await broker.publish([to("plain", str(n)) for n in range(start, start + 10)])
    taken = await asyncio.wait_for(_lines_of_all(workers, 100), PATIENCE_S)

    assert Counter(taken) == Counter(f"took {n}" for n in range(100))
    for worker in workers:
        await worker.communicate(b"")
    assert await broker.depth("plain") == 0


async def _lines_of_all(workers: list[asyncio.subprocess.Process], count: int) -> list[str]:
    """Collect *count* lines of *workers* together."""
    lines: list[str] = []
    enough = asyncio.Event()

    async def collect(worker: asyncio.subprocess.Process) -> None:
        while True:
            lines.append(await line_of(worker))
            if len(lines) >= count:
                enough.set()

    collecting = [asyncio.ensure_future(collect(worker)) for worker in workers]
    await enough.wait()
    for task in collecting:
        task.cancel()
    await asyncio.wait(collecting)
    return lines
