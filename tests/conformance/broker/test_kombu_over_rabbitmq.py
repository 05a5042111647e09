"""RabbitMQ through kombu, as the blocking client uses it: what is not confirmed is heard of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.conformance.broker.harness import QUIET_S, next_of, to
from tidewheel import SyncClient
from tidewheel.broker.errors import BrokerUnavailable, Unroutable
from tidewheel.broker.kombu_bridge import KombuBroker
from tidewheel.broker.kombu_rabbitmq import rabbitmq
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.opening import open_broker
from tidewheel.broker.protocol import Broker
from tidewheel.broker.topology import Queue, Topology, reply_topology, work_queue, work_topology
from tidewheel.broker.work_items import RunHint, read_item
from tidewheel.store.memory import MemoryStore

#: A queue that takes one message and refuses the next.
FULL_AFTER_ONE = {"x-max-length": 1, "x-overflow": "reject-publish"}


@pytest.fixture
async def kombu(fresh_rabbitmq: str) -> AsyncIterator[KombuBroker]:
    """A broker through kombu, with a queue ``plain``, and a queue ``full`` that takes no more."""
    target = rabbitmq(fresh_rabbitmq)
    broker = KombuBroker(target)
    await broker.declare(Topology(queues=(Queue(name="plain"),)))
    wire = target.connect()
    wire.channel.queue_declare(queue="full", durable=True, auto_delete=False, arguments=FULL_AFTER_ONE)
    wire.close()
    await broker.publish([to("full")])
    yield broker
    await broker.close()


async def test_a_message_comes_as_it_was_published(kombu: KombuBroker) -> None:
    """Body, id, headers and expiry, for any bytes."""
    sent = Message(body=bytes(range(256)), message_id="one", headers={"ce-type": "Ä"}, expires_s=60.0)

    await kombu.publish([Publication(message=sent, routing_key="plain")])

    async with kombu.consume("plain", prefetch=1) as deliveries:
        delivery = await next_of(deliveries)
        await delivery.acknowledge()
        assert (delivery.message, delivery.earlier_deliveries) == (sent, 0)


async def test_a_message_that_the_broker_refuses_is_not_taken_for_published(kombu: KombuBroker) -> None:
    """Publishing waits for the broker's word; without it, this would look like success."""
    with pytest.raises(BrokerUnavailable, match="refuses a message"):
        await kombu.publish([to("full")])


async def test_what_no_queue_takes_is_said_and_the_rest_is_taken(kombu: KombuBroker) -> None:
    """RabbitMQ returns an unroutable message and confirms it all the same."""
    with pytest.raises(Unroutable) as caught:
        await kombu.publish([to("nowhere"), to("plain"), to("key", exchange="no-exchange"), to("plain")])

    assert caught.value.addresses == ["queue 'nowhere'", "exchange 'no-exchange' with key 'key'"]
    assert await kombu.depth("plain") == 2


def test_a_returned_message_is_waited_for_until_it_is_confirmed(fresh_rabbitmq: str) -> None:
    """The confirmation comes after the return; left on the wire it could pass for that of the next one."""
    wire = rabbitmq(fresh_rabbitmq).connect()

    is_taken = wire.publish(to("nowhere"))

    assert not is_taken
    with pytest.raises(TimeoutError):
        wire._connection.drain_events(timeout=QUIET_S)
    wire.close()


async def test_a_queue_that_is_not_there_is_empty_and_may_be_deleted(kombu: KombuBroker) -> None:
    """RabbitMQ closes the channel on which one asks for it; the next question finds another."""
    assert [await kombu.depth("nowhere"), await kombu.depth("plain")] == [0, 0]

    await kombu.delete_queue("nowhere")


async def test_many_publish_at_once_over_a_few_connections(kombu: KombuBroker) -> None:
    """A hundred requests share the pool, and each is confirmed."""
    await asyncio.gather(*(kombu.publish([to("plain", str(n))]) for n in range(100)))

    assert await kombu.depth("plain") == 100


async def test_a_consumer_of_a_deleted_queue_is_told(kombu: KombuBroker) -> None:
    """It is never silently deaf."""
    async with kombu.consume("plain", prefetch=1) as deliveries:
        await kombu.delete_queue("plain")

        with pytest.raises(BrokerUnavailable):
            await next_of(deliveries)


# What the blocking client and the workers have in common


@pytest.fixture
async def workers(fresh_rabbitmq: str) -> AsyncIterator[Broker]:
    """The broker of workers, on the same queues."""
    broker = open_broker(fresh_rabbitmq, store_url="")
    yield broker
    await broker.close()


@pytest.mark.parametrize("topology", [work_topology("default", ["a", "b"]), reply_topology("c")])
async def test_whoever_declares_first_the_other_agrees(
    kombu: KombuBroker, workers: Broker, topology: Topology
) -> None:
    """A client that comes before the first worker makes the queues that the worker wants, and the reverse."""
    await kombu.declare(topology)
    await workers.declare(topology)
    for queue in topology.queues:
        await kombu.delete_queue(queue.name)

    await workers.declare(topology)
    await kombu.declare(topology)


async def test_workers_and_clients_read_each_others_messages(kombu: KombuBroker, workers: Broker) -> None:
    """Body, id, headers and expiry are the same, whichever library carried them."""
    sent = Message(body=bytes(range(256)), message_id="one", headers={"ce-type": "Ä"}, expires_s=60.0)
    publication = Publication(message=sent, routing_key="plain")

    await kombu.publish([publication])
    async with workers.consume("plain", prefetch=1) as deliveries:
        of_the_client = await next_of(deliveries)
        await of_the_client.acknowledge()
    await workers.publish([publication])
    async with kombu.consume("plain", prefetch=1) as deliveries:
        of_the_worker = await next_of(deliveries)
        await of_the_worker.acknowledge()

    assert of_the_client.message == of_the_worker.message == sent


async def test_a_worker_is_told_what_a_blocking_client_starts(workers: Broker, fresh_rabbitmq: str) -> None:
    """The hint of a start is one that workers read; also where no worker has been yet."""
    with SyncClient.connect(MemoryStore(), fresh_rabbitmq) as client:
        handle = client.start("fulfil", 1, queue="ships")

    async with workers.consume(work_queue("default", "ships"), prefetch=1) as deliveries:
        hint = await next_of(deliveries)
        await hint.acknowledge()

    assert read_item(hint.message) == RunHint(namespace="default", run_id=handle.run_id)
