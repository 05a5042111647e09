"""RabbitMQ is restarted, killed, halted, short of memory: nothing confirmed is lost, and nobody is deaf."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.servers.rabbitmq import PrivateRabbit
from tidewheel import App, Client, Context
from tidewheel.broker.errors import BrokerUnavailable, Unroutable
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.rabbitmq.address import read_url
from tidewheel.broker.rabbitmq.broker import RabbitBroker
from tidewheel.broker.topology import Queue, Topology, dead_letter_queue, work_queue, work_topology
from tidewheel.journal.errors import InvalidRequest
from tidewheel.store.memory import MemoryStore
from tidewheel.workers.config import WorkerConfig
from tidewheel.workers.worker import Worker

#: Longer than anything takes here, a node that starts again included.
PATIENCE_S = 60.0
#: How soon everything has to flow again, once the broker takes connections.
RECOVERY_MAX_S = 5.0
BATCH = 20


@pytest.fixture
def name() -> str:
    """A queue's name that was never used on the node.

    After a SIGKILL RabbitMQ 3.10 does not find the data of a quorum queue again that was deleted and
    declared anew under its old name.
    """
    return secrets.token_hex(4)


def to(queue: str, text: str) -> Publication:
    """Address a message whose body and id are *text*."""
    return Publication(message=Message(body=text.encode(), message_id=text), routing_key=queue)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[RabbitBroker]:
    """Return a block with a broker at *url*."""
    broker = RabbitBroker(read_url(url))
    try:
        yield broker
    finally:
        await broker.close()


class Traffic:
    """Publishes and consumes without end, as workers do, and keeps account of both."""

    def __init__(self, broker: RabbitBroker, name: str) -> None:
        self._broker = broker
        self._name = name
        self._queue = work_queue("default", name)
        self.confirmed: set[str] = set()
        self.received: set[str] = set()
        self.failures: list[str] = []
        self._arrived = asyncio.Event()
        self._failed = asyncio.Event()

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Keep it up while the block lasts, and then until all that was confirmed has come."""
        await self._broker.declare(work_topology("default", [self._name]))
        publishing = asyncio.create_task(self._publish())
        consuming = asyncio.create_task(self._consume())
        try:
            await self.more()
            yield
            publishing.cancel()
            async with asyncio.timeout(PATIENCE_S):
                while self.confirmed - self.received:
                    await self.more(1)
        finally:
            publishing.cancel()
            consuming.cancel()
            await asyncio.wait([publishing, consuming])

    async def more(self, count: int = 10 * BATCH) -> None:
        """Wait until *count* more messages have come."""
        goal = len(self.received) + count
        async with asyncio.timeout(PATIENCE_S):
            while len(self.received) < goal:
                self._arrived.clear()
                await self._arrived.wait()

    async def failed(self) -> None:
        """Wait for the next failure."""
        self._failed.clear()
        await self._failed.wait()

    def _note_failure(self, problem: Exception) -> None:
        self.failures.append(str(problem))
        self._failed.set()

    async def _publish(self) -> None:
        for start in range(0, 10_000_000, BATCH):
            batch = [to(self._queue, str(number)) for number in range(start, start + BATCH)]
            try:
                await self._broker.publish(batch)
            except (BrokerUnavailable, Unroutable) as problem:
                self._note_failure(problem)
            else:
                self.confirmed |= {one.message.message_id for one in batch}
            await asyncio.sleep(0.002)

    async def _consume(self) -> None:
        while True:
            try:
                async with self._broker.consume(self._queue, prefetch=64) as deliveries:
                    async for delivery in deliveries:
                        self.received.add(delivery.message.message_id)
                        self._arrived.set()
                        await delivery.acknowledge()
            except BrokerUnavailable as problem:
                self._note_failure(problem)


def restart(node: PrivateRabbit) -> None:
    """Stop the broker in an orderly way and start it again."""
    node.stop_app()
    node.start_app()


def kill_and_start(node: PrivateRabbit) -> None:
    """Kill the broker, which has no time for anything, and start it again."""
    node.kill()
    node.start()


@pytest.mark.parametrize("fault", [PrivateRabbit.close_all_connections, restart, kill_and_start])
async def test_no_confirmed_message_is_lost(
    own_rabbit: PrivateRabbit, name: str, fault: Callable[[PrivateRabbit], object]
) -> None:
    """Everything flows again by itself within seconds, all that was confirmed arrives, nobody is deaf."""
    async with connected(own_rabbit.url) as broker:
        traffic = Traffic(broker, name)
        async with traffic.flowing():
            await asyncio.to_thread(fault, own_rabbit)
            back_s = time.monotonic()
            await traffic.more()
            took_s = time.monotonic() - back_s

            consumers = await asyncio.to_thread(own_rabbit.list_consumers)

    assert traffic.failures
    assert took_s < RECOVERY_MAX_S
    assert [consumer["queue"] for consumer in consumers] == [work_queue("default", name)]
    assert traffic.confirmed <= traffic.received


async def test_a_broker_that_stands_still_is_noticed(own_rabbit: PrivateRabbit, name: str) -> None:
    """A node that neither answers nor closes is given up after two heartbeats, and found again later."""
    async with connected(f"{own_rabbit.url}?heartbeat=1&connect_timeout=1&publish_timeout=3") as broker:
        traffic = Traffic(broker, name)
        async with traffic.flowing():
            assert own_rabbit.pid is not None
            os.kill(own_rabbit.pid, signal.SIGSTOP)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    while not any("silent" in failure for failure in traffic.failures):
                        await traffic.failed()
            finally:
                os.kill(own_rabbit.pid, signal.SIGCONT)
            await traffic.more()

    assert traffic.confirmed <= traffic.received


async def test_a_memory_alarm_stops_publishing_within_bounds_and_nothing_else(
    own_rabbit: PrivateRabbit, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Publishing gives up in time and says why; consuming goes on; when memory is there again, so is all."""
    queue = work_queue("default", name)
    caplog.set_level(logging.WARNING, "tidewheel.broker")
    async with connected(f"{own_rabbit.url}?publish_timeout=1") as broker:
        await broker.declare(work_topology("default", [name]))
        await broker.publish([to(queue, str(number)) for number in range(100)])
        await asyncio.to_thread(own_rabbit.raise_memory_alarm)

        began_s = time.monotonic()
        # The first may still be taken: RabbitMQ blocks who publishes when it does.
        with contextlib.suppress(BrokerUnavailable):
            await broker.publish([to(queue, "on the edge")])
        with pytest.raises(BrokerUnavailable, match="has taken nothing for 1 s: low on memory"):
            await broker.publish([to(queue, "too much")])
        waited_s = time.monotonic() - began_s
        async with broker.consume(queue, prefetch=10) as deliveries:
            for _ in range(100):
                await (await asyncio.wait_for(anext(deliveries), PATIENCE_S)).acknowledge()
        await asyncio.to_thread(own_rabbit.clear_memory_alarm)
        await broker.publish([to(queue, "after")])

        assert waited_s < 3.0
        assert (broker.counts.blocked, broker.connections_opened) == (1, 2)
        told = [record.getMessage() for record in caplog.records if record.name == "tidewheel.broker"]
        assert ["takes no messages now" in told[0], "takes messages again" in told[-1]] == [True, True]


async def test_a_deleted_queue_ends_its_consumer_and_comes_back(own_rabbit: PrivateRabbit, name: str) -> None:
    """A consumer of a queue that an operator deletes hears of it; declared again, the queue works."""
    queue = work_queue("default", name)
    async with connected(own_rabbit.url) as broker, connected(own_rabbit.url) as operator:
        await broker.declare(work_topology("default", [name]))
        async with broker.consume(queue, prefetch=1) as deliveries:
            waiting = asyncio.ensure_future(anext(deliveries))
            await operator.delete_queue(queue)

            with pytest.raises(BrokerUnavailable, match=f"{queue!r}: the queue is gone"):
                await asyncio.wait_for(waiting, PATIENCE_S)
        with pytest.raises(Unroutable):
            await broker.publish([to(queue, "nowhere")])

        await broker.declare(work_topology("default", [name]))
        await broker.publish([to(queue, "again")])

        assert await operator.depth(queue) == 1


async def test_a_queue_declared_otherwise_is_explained_and_harms_nobody(own_rabbit: PrivateRabbit) -> None:
    """Which queue, which argument, what it has, what was asked for; other work of the process goes on."""
    async with connected(own_rabbit.url) as broker:
        await broker.declare(Topology(queues=(Queue(name="mine", delivery_limit=3, ttl_s=5.0),)))
        async with broker.consume("mine", prefetch=1) as deliveries:
            for other, says in (
                (Queue(name="mine", delivery_limit=5, ttl_s=5.0), "x-delivery-limit 2, and 4 is asked for"),
                (Queue(name="mine", delivery_limit=3), "x-message-ttl 5000, and none is asked for"),
                (
                    Queue(name="mine", kind="classic", ttl_s=5.0),
                    "x-queue-type quorum, and classic is asked for",
                ),
            ):
                with pytest.raises(
                    InvalidRequest, match=f"the queue 'mine' exists with {says}; .* delete it"
                ):
                    await broker.declare(Topology(queues=(other,)))
            await broker.publish([to("mine", "unharmed")])

            assert (await asyncio.wait_for(anext(deliveries), PATIENCE_S)).message.body == b"unharmed"
        assert broker.connections_opened == 2


async def test_clean_stops_make_no_dead_letters(own_rabbit: PrivateRabbit, name: str) -> None:
    """What a worker fetched ahead and did not look at is as new when it stops, however often one does."""
    queue = work_queue("default", name)
    async with connected(own_rabbit.url) as broker:
        await broker.declare(work_topology("default", [name]))
        await broker.publish([to(queue, str(number)) for number in range(200)])
        seen: list[str] = []
        for _ in range(5):
            async with broker.consume(queue, prefetch=64) as deliveries:
                for _ in range(3):
                    delivery = await asyncio.wait_for(anext(deliveries), PATIENCE_S)
                    seen.append(delivery.message.message_id)
                    assert delivery.earlier_deliveries == 0
                    await delivery.acknowledge()

        async with broker.consume(queue, prefetch=64) as deliveries:
            for _ in range(185):
                delivery = await asyncio.wait_for(anext(deliveries), PATIENCE_S)
                seen.append(delivery.message.message_id)
                assert delivery.earlier_deliveries == 0
                await delivery.acknowledge()

        assert sorted(seen, key=int) == [str(number) for number in range(200)]
        assert await broker.depth(dead_letter_queue(queue)) == 0


async def test_a_worker_that_stops_leaves_new_work_to_others(own_rabbit: PrivateRabbit, name: str) -> None:
    """While it finishes what is in its hands, it fetches nothing that it would not begin with."""
    app, begun, finish = App("stopping"), asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> str:
        begun.set()
        await finish.wait()
        return "done"

    @app.workflow(queue=name)
    async def one(ctx: Context) -> str:
        return await ctx.invoke(work)

    store = MemoryStore()
    async with connected(own_rabbit.url) as broker:
        client = await Client.connect(store, broker)
        worker = Worker(app, store, broker, config=WorkerConfig(queues=(name, "default")))
        await worker.start()
        await client.start(one)
        await asyncio.wait_for(begun.wait(), PATIENCE_S)
        stopping = asyncio.ensure_future(worker.stop())
        async with asyncio.timeout(PATIENCE_S):
            while await asyncio.to_thread(own_rabbit.list_consumers):
                pass

        for _ in range(3):
            await client.start(one)
        depth = await broker.depth(work_queue("default", name))
        finish.set()
        await asyncio.wait_for(stopping, PATIENCE_S)

        assert depth == 3
        await client.close()


@pytest.fixture
def short_consumer_timeout(own_rabbit: PrivateRabbit) -> Iterator[PrivateRabbit]:
    """A node that lets nobody hold a delivery for more than a second, and looks twice in one."""
    short = {"consumer_timeout": 1000, "channel_tick_interval": 500}
    before = {
        name: own_rabbit.evaluate(f"element(2, application:get_env(rabbit, {name})).") for name in short
    }
    for name, value in short.items():
        own_rabbit.evaluate(f"application:set_env(rabbit, {name}, {value}).")
    yield own_rabbit
    for name, value in before.items():
        own_rabbit.evaluate(f"application:set_env(rabbit, {name}, {value}).")


async def test_a_delivery_held_for_too_long_ends_the_consumer_alone(
    short_consumer_timeout: PrivateRabbit,
) -> None:
    """RabbitMQ closes the channel: its iterator ends, the message comes back, other consumers go on."""
    async with connected(short_consumer_timeout.url) as broker:
        await broker.declare(Topology(queues=(Queue(name="slow"), Queue(name="other"))))
        await broker.publish([to("slow", "held")])
        async with broker.consume("other", prefetch=1) as others:
            async with broker.consume("slow", prefetch=1) as deliveries:
                held = await asyncio.wait_for(anext(deliveries), PATIENCE_S)
                with pytest.raises(BrokerUnavailable, match="timed out"):
                    await asyncio.wait_for(anext(deliveries), PATIENCE_S)
                await held.acknowledge()
            async with broker.consume("slow", prefetch=1) as deliveries:
                again = await asyncio.wait_for(anext(deliveries), PATIENCE_S)
                await again.acknowledge()
            await broker.publish([to("other", "unharmed")])

            assert (again.message.body, again.earlier_deliveries) == (b"held", 1)
            assert (await asyncio.wait_for(anext(others), PATIENCE_S)).message.body == b"unharmed"
        assert broker.connections_opened == 2
