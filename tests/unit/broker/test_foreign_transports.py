"""Any transport of kombu's can carry hints; what it cannot do it says."""

from __future__ import annotations

import asyncio

import pytest

from tidewheel.broker.kombu_bridge import KombuBroker
from tidewheel.broker.kombu_transports import LACKS
from tidewheel.broker.kombu_wire import Target
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.topology import Binding, Exchange, Queue, Topology
from tidewheel.journal.errors import InvalidRequest


def to(key: str, text: str, *, exchange: str = "") -> Publication:
    """Address a message."""
    message = Message(body=text.encode(), message_id=text, headers={"a": "b"})
    return Publication(message=message, routing_key=key, exchange=exchange)


async def test_kombus_own_memory_transport_delivers_and_says_what_it_lacks() -> None:
    """Publishing, topics, prefetch and settling work over a transport that is not ours."""
    broker = KombuBroker(Target(transport="memory"))
    await broker.declare(
        Topology(
            exchanges=(Exchange("foreign", "topic"),),
            queues=(Queue(name="foreign.q", delivery_limit=3),),
            bindings=(Binding("foreign", "foreign.q", "a.#"),),
        )
    )

    await broker.publish([to("foreign.q", "1"), to("a.b", "2", exchange="foreign")])
    async with asyncio.timeout(10), broker.consume("foreign.q", prefetch=1) as deliveries:
        first = await anext(deliveries)
        await first.acknowledge()
        second = await anext(deliveries)
        await second.release()
        await (await anext(deliveries)).acknowledge()

    assert [first.message.message_id, second.message.body] == ["1", b"2"]
    assert first.message.headers == {"a": "b"}
    assert await broker.depth("foreign.q") == 0
    assert broker.lacks == LACKS["memory"]
    await broker.close()


async def test_what_a_foreign_transport_refuses_is_the_callers_mistake() -> None:
    """An exchange declared with another type is refused there too."""
    broker = KombuBroker(Target(transport="memory"))
    await broker.declare(Topology(exchanges=(Exchange("refused", "topic"),)))

    with pytest.raises(InvalidRequest, match="refused"):
        await broker.declare(Topology(exchanges=(Exchange("refused", "direct"),)))

    await broker.close()
