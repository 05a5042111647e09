"""A consumer is never silently deaf: whatever ends it, its iterator says so."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest
from pamqp import commands
from pamqp.header import ContentHeader

from tests.unit.broker.scripted_broker import ScriptedBroker, scripted_broker
from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.message import REASON
from tidewheel.broker.rabbitmq import lane
from tidewheel.broker.rabbitmq.address import read_url
from tidewheel.broker.rabbitmq.broker import RabbitBroker
from tidewheel.broker.topology import Queue, Topology

#: Nothing here takes nearly as long, unless it never comes.
PATIENCE_S = 10.0
WORK = Queue(name="q", delivery_limit=3, dead_letter_queue="q.dlq")


async def consumer_channel(server: ScriptedBroker) -> int:
    """Return the channel of the consumer that began first."""
    return (await server.hears(commands.Basic.Consume))[0][0]


async def test_a_consumer_that_the_broker_has_forgotten_ends() -> None:
    """It asks now and then, and an answer of no consumers means that it is deaf."""
    async with scripted_broker("?check_interval=0.1") as server:
        broker = RabbitBroker(read_url(server.url))
        async with broker.consume("q", prefetch=1) as deliveries:
            waiting = asyncio.ensure_future(anext(deliveries))
            await server.hears(commands.Queue.Declare, 2)
            assert not waiting.done()

            server.answers[commands.Queue.Declare] = lambda _: commands.Queue.DeclareOk("q", 5, 0)

            with pytest.raises(BrokerUnavailable, match="'q' has no consumer"):
                await asyncio.wait_for(waiting, PATIENCE_S)
        assert broker.counts.consumers_lost == 1
        await broker.close()


async def test_a_consumer_whose_question_is_not_answered_ends() -> None:
    """A channel on which nothing is answered delivers nothing either."""
    async with scripted_broker("?check_interval=0.1&answer_timeout=0.1") as server:
        broker = RabbitBroker(read_url(server.url))
        async with broker.consume("q", prefetch=1) as deliveries:
            server.answers[commands.Queue.Declare] = lambda _: None

            with pytest.raises(BrokerUnavailable, match="did not answer in time"):
                await asyncio.wait_for(anext(deliveries), PATIENCE_S)
        await broker.close()


@pytest.mark.parametrize(
    ("method", "says"),
    [
        (commands.Basic.Cancel("tidewheel", nowait=True), "cancelled the consumer of 'q'"),
        (
            commands.Channel.Close(406, "PRECONDITION_FAILED - delivery acknowledgement timed out", 0, 0),
            "acknowledgement timed out",
        ),
    ],
)
async def test_a_consumer_that_the_broker_ends_says_so(method: commands.Basic.Cancel, says: str) -> None:
    """The queue was deleted or has moved, or a delivery was held for too long."""
    async with scripted_broker() as server:
        broker = RabbitBroker(read_url(server.url))
        async with broker.consume("q", prefetch=1) as deliveries:
            server.sessions[0].send(await consumer_channel(server), method)

            with pytest.raises(BrokerUnavailable, match=says):
                await asyncio.wait_for(anext(deliveries), PATIENCE_S)
        async with broker.consume("q", prefetch=1):
            pass
        assert len(server.sessions) == 1
        await broker.close()


async def test_a_broker_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A half-open connection says nothing by itself: after two heartbeats without a word it is gone."""
    monkeypatch.setattr(lane, "SILENT_HEARTBEATS_MAX", 0.2)
    async with scripted_broker("?heartbeat=1") as server:
        broker = RabbitBroker(read_url(server.url))
        async with broker.consume("q", prefetch=1) as deliveries:
            with pytest.raises(BrokerUnavailable, match="silent"):
                await asyncio.wait_for(anext(deliveries), PATIENCE_S)
        await broker.close()


async def test_a_closed_connection_says_what_the_broker_said() -> None:
    """The words of the broker reach who waits, and the connection is not used again."""
    async with scripted_broker() as server:
        broker = RabbitBroker(read_url(server.url))
        async with broker.consume("q", prefetch=1) as deliveries:
            server.sessions[0].send(0, commands.Connection.Close(320, "CONNECTION_FORCED - shutdown", 0, 0))

            with pytest.raises(BrokerUnavailable, match="CONNECTION_FORCED - shutdown"):
                await asyncio.wait_for(anext(deliveries), PATIENCE_S)
        assert await broker.depth("q") == 0
        assert len(server.sessions) == 2
        await broker.close()


async def test_acknowledgements_that_come_together_take_one_frame() -> None:
    """What is acknowledged in one turn of the loop is acknowledged up to the last of it."""
    async with scripted_broker() as server:
        broker = RabbitBroker(read_url(server.url))
        async with broker.consume("q", prefetch=10) as deliveries:
            channel = await consumer_channel(server)
            for tag in range(1, 6):
                server.sessions[0].deliver(channel, tag)
            held = [await asyncio.wait_for(anext(deliveries), PATIENCE_S) for _ in range(5)]

            for delivery in (held[1], held[0], held[4], held[2]):
                await delivery.acknowledge()
            acks = await server.hears(commands.Basic.Ack, 2)

            assert [(ack.delivery_tag, ack.multiple) for _, ack in acks] == [(3, True), (5, False)]
        await broker.close()


async def test_the_last_acknowledgements_wait_for_the_cancel() -> None:
    """Sent before it they would bring deliveries that are counted and never seen."""
    async with scripted_broker() as server:
        broker = RabbitBroker(read_url(server.url))
        await broker.declare(Topology(queues=(WORK,)))
        async with broker.consume("q", prefetch=3) as deliveries:
            channel = await consumer_channel(server)
            for tag in (1, 2, 3):
                server.sessions[0].deliver(channel, tag)
            first, _second = [await asyncio.wait_for(anext(deliveries), PATIENCE_S) for _ in range(2)]
            await first.acknowledge()

        await broker.close()

        names = [
            f"{value.name} {getattr(value, 'delivery_tag', '')}".strip()
            for _, value in server.heard
            if isinstance(
                value,
                commands.Basic.Cancel | commands.Basic.Publish | commands.Basic.Ack | commands.Basic.Reject,
            )
        ]
        # The third was never looked at: it is published again, and then acknowledged.
        assert names == ["Basic.Cancel", "Basic.Publish", "Basic.Ack 1", "Basic.Ack 3", "Basic.Reject 2"]


async def test_what_is_published_again_carries_its_count() -> None:
    """A message that two workers died with does not begin anew because a third one stopped."""
    async with scripted_broker() as server:
        broker = RabbitBroker(read_url(server.url))
        await broker.declare(Topology(queues=(WORK,)))
        async with broker.consume("q", prefetch=1):
            channel = await consumer_channel(server)
            twice = commands.Basic.Properties(headers={"x-delivery-count": 2, "a": "b"}, message_id="risky")
            method = commands.Basic.Deliver("tidewheel", 1, redelivered=True, exchange="", routing_key="q")
            server.sessions[0].send(channel, method, ContentHeader(properties=twice))
            await broker.depth("q")  # it has come by now

        (header,) = [value for _, value in server.heard if isinstance(value, ContentHeader)]
        assert header.properties.headers == {"a": "b", "x-tidewheel-deliveries": "2"}
        assert header.properties.message_id == "risky"
        await broker.close()


async def test_nothing_is_said_on_a_channel_that_the_broker_closed() -> None:
    """RabbitMQ would close the whole connection for it, with all other consumers."""
    async with scripted_broker() as server:
        server.on_publish = lambda *_: None
        broker = RabbitBroker(read_url(server.url))
        await broker.declare(Topology(queues=(WORK,)))
        async with broker.consume("q", prefetch=1) as deliveries:
            channel = await consumer_channel(server)
            server.sessions[0].deliver(channel, 1)
            delivery = await asyncio.wait_for(anext(deliveries), PATIENCE_S)
            burying = asyncio.ensure_future(delivery.bury("no good"))
            publishing, _ = (await server.hears(commands.Basic.Publish))[0]
            server.sessions[0].send(channel, commands.Channel.Close(406, "timed out", 0, 0))
            with pytest.raises(BrokerUnavailable, match="timed out"):
                await asyncio.wait_for(anext(deliveries), PATIENCE_S)

            server.sessions[1].send(publishing, commands.Basic.Ack(1))
            await asyncio.wait_for(burying, PATIENCE_S)

        await broker.depth("q")  # whatever was sent has been read by now
        assert not [value for _, value in server.heard if isinstance(value, commands.Basic.Ack)]
        await broker.close()


async def test_what_was_published_again_too_often_is_a_dead_letter() -> None:
    """The broker does not know of the deliveries before a message was published again; its consumer does."""
    async with scripted_broker() as server:
        broker = RabbitBroker(read_url(server.url))
        await broker.declare(Topology(queues=(WORK,)))
        async with broker.consume("q", prefetch=3) as deliveries:
            channel = await consumer_channel(server)
            spent = commands.Basic.Properties(
                headers={"x-tidewheel-deliveries": "2", "x-delivery-count": 1}, message_id="poison"
            )
            method = commands.Basic.Deliver("tidewheel", 1, exchange="", routing_key="q")
            server.sessions[0].send(channel, method, ContentHeader(properties=spent))
            server.sessions[0].deliver(channel, 2)

            delivery = await asyncio.wait_for(anext(deliveries), PATIENCE_S)
            (_, publish), *_ = await server.hears(commands.Basic.Publish)
            await server.hears(commands.Basic.Ack)

            assert delivery.message.body == b"hello"
            assert publish.routing_key == "q.dlq"
        header = next(value for _, value in server.heard if isinstance(value, ContentHeader))
        assert header.properties.headers == {REASON: "delivery-limit", "x-tidewheel-queue": "q"}
        await broker.close()


async def test_a_message_that_cannot_be_buried_stays_in_hand(caplog: pytest.LogCaptureFixture) -> None:
    """If its dead letter is not taken, the message is not acknowledged, and goes back in the end."""
    caplog.set_level(logging.WARNING, "tidewheel.broker")
    async with scripted_broker("?publish_timeout=0.1") as server:
        server.on_publish = lambda *_: None
        broker = RabbitBroker(read_url(server.url))
        await broker.declare(Topology(queues=(WORK,)))
        async with broker.consume("q", prefetch=1) as deliveries:
            server.sessions[0].deliver(await consumer_channel(server), 1)
            delivery = await asyncio.wait_for(anext(deliveries), PATIENCE_S)

            with pytest.raises(BrokerUnavailable, match="did not confirm"):
                await delivery.bury("no good")

        await server.hears(commands.Basic.Reject)
        assert not [value for _, value in server.heard if isinstance(value, commands.Basic.Ack)]
        await broker.close()


@pytest.mark.parametrize("seed", range(20))
async def test_frames_may_come_in_any_pieces(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket cuts where it likes; every message arrives whole and once."""
    chance = random.Random(seed)
    whole = lane.Lane.data_received

    def in_pieces(self: lane.Lane, data: bytes) -> None:
        while data:
            size = chance.randint(1, 40)
            whole(self, data[:size])
            data = data[size:]

    monkeypatch.setattr(lane.Lane, "data_received", in_pieces)
    bodies = [chance.randbytes(chance.randint(1, 100)) for _ in range(50)]
    async with scripted_broker() as server:
        broker = RabbitBroker(read_url(server.url))
        async with broker.consume("q", prefetch=100) as deliveries:
            channel = await consumer_channel(server)
            for tag, body in enumerate(bodies, 1):
                server.sessions[0].deliver(channel, tag, body)

            got = [(await asyncio.wait_for(anext(deliveries), PATIENCE_S)).message.body for _ in bodies]

        assert got == bodies
        assert await broker.depth("q") == 0
        await broker.close()
