"""An AMQP server that does what a test says: it confirms or does not, falls silent, cancels, closes.

It speaks through pamqp, so it reads our frames with other code than ours. What it is asked it answers as
RabbitMQ would, unless the test replaced the answer.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pamqp import commands, frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

_GREETING_SIZE = 8
_ANSWERS: dict[type, Callable[[Any], Any]] = {
    commands.Connection.StartOk: lambda _: commands.Connection.Tune(2047, 131_072, 10),
    commands.Connection.TuneOk: lambda _: None,
    commands.Connection.Open: lambda _: commands.Connection.OpenOk(),
    commands.Connection.Close: lambda _: commands.Connection.CloseOk(),
    commands.Connection.CloseOk: lambda _: None,
    commands.Channel.Open: lambda _: commands.Channel.OpenOk(),
    commands.Channel.Close: lambda _: commands.Channel.CloseOk(),
    commands.Channel.CloseOk: lambda _: None,
    commands.Confirm.Select: lambda _: commands.Confirm.SelectOk(),
    commands.Basic.Qos: lambda _: commands.Basic.QosOk(),
    commands.Basic.Consume: lambda asked: commands.Basic.ConsumeOk(asked.consumer_tag),
    commands.Basic.Cancel: lambda asked: commands.Basic.CancelOk(asked.consumer_tag),
    commands.Basic.Ack: lambda _: None,
    commands.Basic.Reject: lambda _: None,
    commands.Queue.Declare: lambda asked: commands.Queue.DeclareOk(asked.queue, 0, 1),
    commands.Exchange.Declare: lambda _: commands.Exchange.DeclareOk(),
}


@dataclass
class Session:
    """One connection to the scripted broker."""

    writer: asyncio.StreamWriter
    published: dict[int, int] = field(default_factory=dict)

    def send(self, channel: int, *values: frame.FrameTypes) -> None:
        """Send frames on *channel*."""
        self.writer.write(b"".join(frame.marshal(value, channel) for value in values))

    def deliver(self, channel: int, tag: int, body: bytes = b"hello") -> None:
        """Deliver a message."""
        method = commands.Basic.Deliver("tidewheel", tag, exchange="", routing_key="q")
        self.send(channel, method, ContentHeader(body_size=len(body)), ContentBody(body))


class ScriptedBroker:
    """See the module; ``url`` is where it is."""

    def __init__(self) -> None:
        self.url = ""
        #: What is answered to a method, by its class; a test may replace each.
        self.answers = dict(_ANSWERS)
        #: What the broker says to a publication: the session, the channel, the tag.
        self.on_publish: Callable[[Session, int, int], None] = lambda session, channel, tag: session.send(
            channel, commands.Basic.Ack(tag)
        )
        self.sessions: list[Session] = []
        #: Every method that was read, with its channel, and who waits for one.
        self.heard: list[tuple[int, Any]] = []
        self._hearing = asyncio.Condition()

    async def hears(self, method: type, count: int = 1) -> list[tuple[int, Any]]:
        """Wait until *method* was heard that often, and return all of it, with the channels."""

        def found() -> list[tuple[int, Any]]:
            return [(channel, value) for channel, value in self.heard if isinstance(value, method)]

        async with asyncio.timeout(10), self._hearing:
            await self._hearing.wait_for(lambda: len(found()) >= count)
        return found()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        session = Session(writer)
        self.sessions.append(session)
        try:
            await reader.readexactly(_GREETING_SIZE)
            properties = {
                "product": "RabbitMQ",
                "version": "3.10.8",
                "capabilities": {"publisher_confirms": True, "basic.nack": True},
            }
            session.send(0, commands.Connection.Start(0, 9, properties, "PLAIN EXTERNAL", "en_US"))  # type: ignore[arg-type]  # a table with a table in it
            while True:
                head = await reader.readexactly(7)
                size = int.from_bytes(head[3:], "big")
                _, channel, value = frame.unmarshal(head + await reader.readexactly(size + 1))
                await self._hear(session, channel, value)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def _hear(self, session: Session, channel: int, value: Any) -> None:
        if isinstance(value, commands.Basic.Publish):
            tag = session.published[channel] = session.published.get(channel, 0) + 1
            self.on_publish(session, channel, tag)
        elif type(value) in self.answers:
            answer = self.answers[type(value)](value)
            answers: Sequence[frame.FrameTypes] = answer if isinstance(answer, list) else [answer]
            session.send(channel, *(one for one in answers if one is not None))
        async with self._hearing:
            self.heard.append((channel, value))
            self._hearing.notify_all()


@asynccontextmanager
async def scripted_broker(
    options: str = "", *, context: ssl.SSLContext | None = None
) -> AsyncIterator[ScriptedBroker]:
    """Run a scripted broker whose URL has *options*, encrypted with a *context*."""
    broker = ScriptedBroker()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    scheme = "amqp" if context is None else "amqps"
    broker.url = f"{scheme}://guest:secret@127.0.0.1:{port}/{options}"
    try:
        yield broker
    finally:
        server.close()
        for session in broker.sessions:
            session.writer.close()
        await server.wait_closed()
