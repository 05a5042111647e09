"""What goes wrong at the door is one sentence, and what was lost is connected to again, but not in a rush."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from pamqp import commands

from tests.unit.broker.scripted_broker import ScriptedBroker, scripted_broker
from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.rabbitmq import dialer
from tidewheel.broker.rabbitmq.address import read_url
from tidewheel.broker.rabbitmq.broker import RabbitBroker
from tidewheel.broker.rabbitmq.connection import Connection, open_connection, our_errors
from tidewheel.broker.rabbitmq.dialer import Dialer
from tidewheel.broker.topology import Queue, Topology

PATIENCE_S = 10.0


async def trouble(url: str) -> str:
    """Return what is said when *url* cannot be connected to."""
    broker = RabbitBroker(read_url(url))
    with pytest.raises(BrokerUnavailable) as caught:
        await broker.depth("q")
    await broker.close()
    assert "secret" not in str(caught.value)
    return str(caught.value)


async def cut_off(server: ScriptedBroker, broker: RabbitBroker, queue: str) -> None:
    """Cut the connection, and wait until *broker* has noticed."""
    async with broker.consume(queue, prefetch=1) as deliveries:
        server.sessions[-1].writer.transport.abort()
        with pytest.raises(BrokerUnavailable):
            await asyncio.wait_for(anext(deliveries), PATIENCE_S)


@asynccontextmanager
async def serving(answer: bytes | None, connected: asyncio.Event | None = None) -> AsyncIterator[str]:
    """Serve something that is no RabbitMQ; without an *answer* it says nothing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if connected is not None:
            connected.set()
        if answer is None:
            await reader.read()
        else:
            await reader.read(8)
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


async def test_a_wrong_password_is_named() -> None:
    """The user is named, the password is not."""
    async with scripted_broker() as server:
        refused = commands.Connection.Close(403, "ACCESS_REFUSED - Login was refused", 0, 0)
        server.answers[commands.Connection.StartOk] = lambda _: refused

        said = await trouble(server.url)

    assert said.endswith("it refuses the user 'guest': the name or the password is wrong")


async def test_a_missing_vhost_is_named() -> None:
    """With the words of the broker, which tell whether it is missing or forbidden."""
    async with scripted_broker("shop") as server:
        gone = commands.Connection.Close(530, "NOT_ALLOWED - vhost shop not found", 0, 0)
        server.answers[commands.Connection.Open] = lambda _: gone

        said = await trouble(server.url)

    assert said.endswith("it does not let 'guest' into the vhost 'shop': NOT_ALLOWED - vhost shop not found")


async def test_a_port_where_nothing_listens_is_named() -> None:
    """Refused is told apart from everything else."""
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        port = line.getsockname()[1]

    assert await trouble(f"amqp://u:secret@127.0.0.1:{port}") == (
        f"RabbitMQ at amqp://u@127.0.0.1:{port}: nothing listens there"
    )


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "closed the connection without a word"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "closed the connection without a word"),
        (b"AMQP\x00\x01\x00\x00", "AMQP"),
        (None, "did not answer in time"),
    ],
)
async def test_what_is_no_rabbitmq_is_told(answer: bytes | None, says: str) -> None:
    """Whatever answers there, and however: within the bound, in one sentence."""
    async with serving(answer) as place:
        said = await trouble(f"amqp://u:secret@{place}/?connect_timeout=0.3")

    assert says in said
    assert "\n" not in said


async def test_a_plain_port_spoken_to_with_tls_is_told() -> None:
    """A usual mistake: the right host, the wrong port."""
    async with scripted_broker() as server:
        said = await trouble(server.url.replace("amqp://", "amqps://") + "?connect_timeout=5")

    assert "is that port for amqps?" in said


async def test_a_host_that_nobody_knows_is_named() -> None:
    """By its name."""
    assert "the host 'no-such-host.invalid' is not known" in await trouble(
        "amqp://u:secret@no-such-host.invalid"
    )


async def test_what_a_user_may_not_do_is_told() -> None:
    """RabbitMQ closes the channel; the sentence has its words, which name the queue and the user."""
    async with scripted_broker() as server:
        words = "ACCESS_REFUSED - access to queue 'q' in vhost '/' refused for user 'guest'"
        server.answers[commands.Queue.Declare] = lambda _: commands.Channel.Close(403, words, 50, 10)

        said = await trouble(server.url)

    assert said.endswith(f"the permissions of 'guest' do not allow it: {words}")


async def test_many_who_need_a_connection_open_one() -> None:
    """They join the attempt that is under way."""
    async with scripted_broker() as server:
        broker = RabbitBroker(read_url(server.url))

        await asyncio.gather(*(broker.depth("q") for _ in range(20)))

        assert (len(server.sessions), broker.connections_opened) == (1, 1)
        await broker.close()


async def test_attempts_come_less_often_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses double and then stay; chance makes each shorter by up to a half, so that a fleet spreads."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def note(pause_s: float) -> None:
        pauses.append(pause_s)
        await sleep(0)

    async def fail() -> Connection:
        raise BrokerUnavailable("away")

    async def never(_: Connection) -> None:
        pytest.fail("there is no connection")

    monkeypatch.setattr("tidewheel.broker.rabbitmq.dialer.asyncio.sleep", note)
    dialing = Dialer[None](fail, never, lambda _: True)

    for _ in range(12):
        with pytest.raises(BrokerUnavailable, match="away"):
            await dialing.get()

    assert len(pauses) == 11
    for number, pause_s in enumerate(pauses, 1):
        longest_s = min(dialer.PAUSE_FIRST_S * 2**number, dialer.PAUSE_MAX_S)
        assert longest_s / 2 <= pause_s <= longest_s
    assert len(set(pauses)) == len(pauses)


async def test_closing_tells_who_waits_for_a_connection() -> None:
    """It is not cancelled with the attempt: whoever would try again for ever must hear an error."""
    connected = asyncio.Event()
    async with serving(None, connected) as place:
        broker = RabbitBroker(read_url(f"amqp://{place}/"))
        waiting = asyncio.ensure_future(broker.depth("q"))
        await asyncio.wait_for(connected.wait(), PATIENCE_S)

        await broker.close()

        with pytest.raises(BrokerUnavailable, match="closed"):
            await asyncio.wait_for(waiting, PATIENCE_S)


async def test_closing_tells_who_waits_for_an_answer() -> None:
    """With an error of ours: neither one of the library below, nor as if who waits had been cancelled."""
    async with scripted_broker() as server:
        server.answers[commands.Queue.Declare] = lambda _: None
        broker = RabbitBroker(read_url(server.url))
        waiting = asyncio.ensure_future(broker.depth("q"))
        await server.hears(commands.Queue.Declare)

        await broker.close()

        with pytest.raises(BrokerUnavailable):
            await asyncio.wait_for(waiting, PATIENCE_S)


async def test_a_new_connection_declares_what_was_declared() -> None:
    """A broker that lost its queues has them again before anybody consumes; deleted ones stay deleted."""
    async with scripted_broker() as server:
        server.answers[commands.Queue.Delete] = lambda _: commands.Queue.DeleteOk(0)
        broker = RabbitBroker(read_url(server.url))
        await broker.declare(Topology(queues=(Queue(name="kept"), Queue(name="deleted"))))
        await broker.delete_queue("deleted")
        await cut_off(server, broker, "kept")
        server.heard.clear()

        async with broker.consume("kept", prefetch=1):
            pass

        declared = [value for _, value in server.heard if isinstance(value, commands.Queue.Declare)]
        assert {value.queue for value in declared} == {"kept"}
        assert declared[-1].arguments == {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000}
        await broker.close()


async def test_what_does_not_fit_any_more_is_told_and_does_not_stop_consumers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Somebody else declared the queue differently while we were away: it is there, so it is used."""
    caplog.set_level(logging.ERROR, "tidewheel.broker")
    async with scripted_broker() as server:
        broker = RabbitBroker(read_url(server.url))
        await broker.declare(Topology(queues=(Queue(name="q"),)))
        words = (
            "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': "
            "received none but current is the value '5' of type 'signedint'"
        )
        passive = server.answers[commands.Queue.Declare]
        server.answers[commands.Queue.Declare] = lambda asked: (
            passive(asked) if asked.passive else commands.Channel.Close(406, words, 50, 10)
        )
        await cut_off(server, broker, "q")

        async with broker.consume("q", prefetch=1):
            pass

        told = [record for record in caplog.records if record.name == "tidewheel.broker"]
        assert "the queue 'q' exists with x-message-ttl 5, and none is asked for" in told[0].getMessage()
        await broker.close()


async def test_a_connection_can_be_closed_twice() -> None:
    """And one that is gone already."""
    async with scripted_broker() as server:
        connection = await open_connection(read_url(server.url), "testing")
        assert connection.server == "RabbitMQ 3.10.8"

        await connection.close()
        await connection.close()

        assert connection.gone


def test_an_exception_of_no_class_is_one_of_ours() -> None:
    """aiormq ends who waits with one, where a channel is closed before the connection says why."""
    address = read_url("amqp://localhost/")

    with (
        pytest.raises(BrokerUnavailable, match="looking: the connection was lost"),
        our_errors(address, "looking"),
    ):
        raise Exception  # noqa: TRY002 - what aiormq raises

    with pytest.raises(KeyError), our_errors(address):
        raise KeyError
