"""RabbitMQ over TLS, as a node with a certificate serves it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.rabbitmq import PrivateRabbit
from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.rabbitmq.address import read_url
from tidewheel.broker.rabbitmq.broker import RabbitBroker
from tidewheel.broker.topology import work_queue, work_topology


@pytest.fixture(scope="module")
def node() -> Iterator[PrivateRabbit]:
    """A node that also listens encrypted."""
    with PrivateRabbit(tls=True) as node:
        yield node


async def test_work_goes_over_an_encrypted_connection(node: PrivateRabbit) -> None:
    """Everything works as over a plain one."""
    broker = RabbitBroker(read_url(f"{node.tls_url}?cafile={node.authority_file}"))
    await broker.declare(work_topology("default", ["default"]))
    queue = work_queue("default", "default")
    bodies = [bytes([number]) * 50_000 for number in range(20)]

    await broker.publish(
        [Publication(message=Message(body=body, message_id="m"), routing_key=queue) for body in bodies]
    )
    async with broker.consume(queue, prefetch=5) as deliveries:
        got = []
        for _ in bodies:
            delivery = await anext(deliveries)
            got.append(delivery.message.body)
            await delivery.acknowledge()

    assert got == bodies
    await broker.close()


async def test_an_unknown_authority_and_a_plain_client_are_told(node: PrivateRabbit) -> None:
    """One sentence each, without the password."""
    plain_to_tls = node.tls_url.replace("amqps://", "amqp://")
    for url, says in (
        (node.tls_url, "certificate cannot be trusted"),
        (plain_to_tls, "closed the connection"),
    ):
        broker = RabbitBroker(read_url(url))

        with pytest.raises(BrokerUnavailable, match=says) as caught:
            await broker.depth("q")

        assert node.password not in str(caught.value)
        await broker.close()
