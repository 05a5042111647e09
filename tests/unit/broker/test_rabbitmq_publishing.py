"""Publishing ends: all is taken, or somebody is told what is not. It never waits for ever."""

from __future__ import annotations

import asyncio
import logging

import pytest
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from tests.unit.broker.scripted_broker import ScriptedBroker, Session, scripted_broker
from tidewheel.broker.errors import BrokerUnavailable, Unroutable
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.rabbitmq import publisher
from tidewheel.broker.rabbitmq.address import read_url
from tidewheel.broker.rabbitmq.broker import RabbitBroker

#: Nothing here takes nearly as long, unless it never comes.
PATIENCE_S = 10.0


def to(key: str, name: str = "", *, exchange: str = "") -> Publication:
    """Address a message with this id."""
    return Publication(message=Message(body=b"x", message_id=name), routing_key=key, exchange=exchange)


def returned(key: str, name: str) -> list[commands.Basic.Return | ContentHeader | ContentBody]:
    """What RabbitMQ sends back for a message that no queue takes."""
    properties = commands.Basic.Properties(message_id=name)
    return [
        commands.Basic.Return(312, "NO_ROUTE", "", key),
        ContentHeader(body_size=1, properties=properties),
        ContentBody(b"x"),
    ]


async def test_confirms_come_in_any_order_and_for_many() -> None:
    """A call returns when all of its own were confirmed, whenever those of others are."""
    async with scripted_broker() as server:
        server.on_publish = lambda *_: None
        broker = RabbitBroker(read_url(server.url))
        first = asyncio.ensure_future(broker.publish([to("q", str(n)) for n in range(3)]))
        await server.hears(commands.Basic.Publish, 3)
        second = asyncio.ensure_future(broker.publish([to("q", str(n)) for n in range(3, 6)]))
        channel = (await server.hears(commands.Basic.Publish, 6))[0][0]
        (session,) = server.sessions

        session.send(channel, commands.Basic.Ack(5), commands.Basic.Ack(6), commands.Basic.Ack(4))
        await asyncio.wait_for(second, PATIENCE_S)
        assert not first.done()
        session.send(channel, commands.Basic.Ack(1), commands.Basic.Ack(3, multiple=True))

        await asyncio.wait_for(first, PATIENCE_S)
        await broker.close()


async def test_a_refused_message_makes_the_broker_unavailable() -> None:
    """A nack says that the broker did not take it; the others may have been taken."""
    async with scripted_broker() as server:

        def answer(session: Session, channel: int, tag: int) -> None:
            session.send(channel, commands.Basic.Nack(tag) if tag == 2 else commands.Basic.Ack(tag))

        server.on_publish = answer
        broker = RabbitBroker(read_url(server.url))

        with pytest.raises(BrokerUnavailable, match="refused 1 of 3 messages") as caught:
            await broker.publish([to("q"), to("q"), to("q")])

        assert "secret" not in str(caught.value)
        await broker.publish([to("q")])
        await broker.close()


async def test_of_what_is_offered_each_refusal_is_told() -> None:
    """Whoever offers several learns which of them the broker did not take."""
    async with scripted_broker() as server:

        def answer(session: Session, channel: int, tag: int) -> None:
            session.send(channel, commands.Basic.Nack(tag) if tag == 2 else commands.Basic.Ack(tag))

        server.on_publish = answer
        broker = RabbitBroker(read_url(server.url))

        assert await broker.offer([to("q"), to("q"), to("q")]) == [None, "refused", None]
        await broker.close()


async def test_returns_are_told_to_whom_they_belong() -> None:
    """Of two calls that publish side by side, each hears of its own, also with equal ids and keys."""
    async with scripted_broker() as server:
        server.on_publish = lambda *_: None
        broker = RabbitBroker(read_url(server.url))
        calls = [
            asyncio.ensure_future(broker.publish(batch))
            for batch in ([to("q", "1"), to("lost", "2")], [to("lost", "2"), to("lost", "3")])
        ]
        channel = (await server.hears(commands.Basic.Publish, 4))[0][0]
        (session,) = server.sessions

        for name in ("2", "2", "3"):
            session.send(channel, *returned("lost", name))
        session.send(channel, commands.Basic.Ack(4, multiple=True))
        outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), PATIENCE_S)

        assert [len(one.addresses) for one in outcomes if isinstance(one, Unroutable)] == [1, 2]
        await broker.close()


async def test_no_more_than_the_window_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is more waits before it is sent, and follows in order."""
    monkeypatch.setattr(publisher, "IN_FLIGHT_MAX", 10)
    async with scripted_broker() as server:
        server.on_publish = lambda *_: None
        broker = RabbitBroker(read_url(server.url))
        publishing = asyncio.ensure_future(broker.publish([to(f"q{n}") for n in range(25)]))
        channel = (await server.hears(commands.Basic.Publish, 10))[0][0]
        (session,) = server.sessions
        await broker.depth("q")  # whatever was sent has been read by now
        assert session.published[channel] == 10

        for sent in (10, 20, 25):
            await server.hears(commands.Basic.Publish, sent)
            session.send(channel, commands.Basic.Ack(sent, multiple=True))
        await asyncio.wait_for(publishing, PATIENCE_S)

        keys = [value.routing_key for _, value in await server.hears(commands.Basic.Publish, 25)]
        assert keys == [f"q{n}" for n in range(25)]
        await broker.close()


async def test_a_broker_that_does_not_confirm_is_not_waited_for_long() -> None:
    """After the bound the connection is given up: its window would stay full. The next call has a new one."""
    async with scripted_broker("?publish_timeout=0.2") as server:
        server.on_publish = lambda *_: None
        broker = RabbitBroker(read_url(server.url))
        with pytest.raises(BrokerUnavailable, match=r"did not confirm within 0\.2 s"):
            await broker.publish([to("q")])

        server.on_publish = ScriptedBroker().on_publish
        await broker.publish([to("q")])

        assert (len(server.sessions), broker.counts.publish_timeouts) == (2, 1)
        await broker.close()


async def test_a_blocked_connection_is_waited_for_within_bounds(caplog: pytest.LogCaptureFixture) -> None:
    """Blocked and unblocked are told in the log and counted; nothing is sent meanwhile, and then all is."""
    caplog.set_level(logging.WARNING, "tidewheel.broker")
    async with scripted_broker("?publish_timeout=0.3") as server:
        broker = RabbitBroker(read_url(server.url))
        await broker.publish([to("q")])
        (session,) = server.sessions
        session.send(0, commands.Connection.Blocked("low on memory"))
        async with asyncio.timeout(PATIENCE_S):
            while not broker.counts.blocked:  # noqa: ASYNC110 - a count has no event
                await asyncio.sleep(0)

        with pytest.raises(BrokerUnavailable, match=r"has taken nothing for 0\.3 s: low on memory"):
            await broker.publish([to("q")])
        waiting = asyncio.ensure_future(broker.publish([to("q")]))
        await asyncio.sleep(0)
        session.send(0, commands.Connection.Unblocked())
        await asyncio.wait_for(waiting, PATIENCE_S)

        assert (broker.counts.blocked, len(server.sessions)) == (1, 1)
        assert len(await server.hears(commands.Basic.Publish)) == 2
        told = [record.getMessage() for record in caplog.records if record.name == "tidewheel.broker"]
        assert [("takes no messages now" in line, "takes messages again" in line) for line in told] == [
            (True, False),
            (False, True),
        ]
        await broker.close()


async def test_a_lost_connection_fails_what_was_on_its_way() -> None:
    """Nobody knows what became of it; who published tries again, over a new connection."""
    async with scripted_broker() as server:
        server.on_publish = lambda *_: None
        broker = RabbitBroker(read_url(server.url))
        publishing = asyncio.ensure_future(broker.publish([to("q")]))
        await server.hears(commands.Basic.Publish)
        server.sessions[0].writer.transport.abort()

        with pytest.raises(BrokerUnavailable, match="connection"):
            await asyncio.wait_for(publishing, PATIENCE_S)

        server.on_publish = ScriptedBroker().on_publish
        await broker.publish([to("q")])
        await broker.close()


async def test_an_exchange_that_went_away_is_looked_for_again() -> None:
    """RabbitMQ closes the channel for it: one call fails, the next says which address no queue takes."""
    async with scripted_broker() as server:
        gone = commands.Channel.Close(404, "NOT_FOUND - no exchange 'events' in vhost '/'", 60, 40)
        broker = RabbitBroker(read_url(server.url))
        await broker.publish([to("k", exchange="events")])
        server.on_publish = lambda session, channel, _: session.send(channel, gone)
        server.answers[commands.Exchange.Declare] = lambda _: gone

        with pytest.raises(BrokerUnavailable, match="no exchange 'events'"):
            await broker.publish([to("k", exchange="events")])
        with pytest.raises(Unroutable, match="'events'"):
            await broker.publish([to("k", exchange="events")])

        await broker.close()


async def test_a_cancelled_call_leaves_the_others_alone() -> None:
    """Whoever stops waiting does not disturb the order of confirms."""
    async with scripted_broker() as server:
        server.on_publish = lambda *_: None
        broker = RabbitBroker(read_url(server.url))
        left = asyncio.ensure_future(broker.publish([to("q")]))
        stays = asyncio.ensure_future(broker.publish([to("q")]))
        channel = (await server.hears(commands.Basic.Publish, 2))[0][0]
        left.cancel()
        await asyncio.wait([left])

        server.sessions[0].send(channel, commands.Basic.Ack(1))
        server.sessions[0].send(channel, commands.Basic.Ack(2))

        await asyncio.wait_for(stays, PATIENCE_S)
        await broker.close()
