"""The socket of a connection, shared by aiormq and our own lane for messages.

aiormq speaks for the connection: handshake, heartbeats, channels, declarations. The frames of messages
go past it, between the socket and whoever listens to their channel: a message costs aiormq over 70
microseconds in each direction, and the lane less than a tenth of that (``benchmarks/bench_rabbitmq.py``).

Whatever happens to the socket, every listener is told: nobody waits in a connection that is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, cast

from tidewheel.broker.rabbitmq.frames import (
    CONNECTION_BLOCKED,
    CONNECTION_CLOSE,
    CONNECTION_UNBLOCKED,
    FRAME,
    FRAME_EXTRA,
    HEARTBEAT,
    Closing,
    read_blocked,
    read_closing,
)

#: A broker that was not heard of for this many heartbeats is gone; it sends two in each.
SILENT_HEARTBEATS_MAX = 2
#: How often aiormq is told that the broker is there, while all that comes is for the lane.
TELL_AIORMQ_S = 1.0
#: What a broker of another protocol begins with.
_PROTOCOL_HEADER = ord("A")


class Listener(Protocol):
    """Whoever gets the frames of one channel."""

    def hear(self, kind: int, payload: bytes) -> bool:
        """Take a frame; false if it is for aiormq, which answers it."""

    def lost(self, why: str) -> None:
        """The connection is gone: nothing will be heard any more."""


class Lane(asyncio.StreamReaderProtocol):
    """One socket. Everything happens in the event loop that opened it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, heartbeat_s: float) -> None:
        self.reader = asyncio.StreamReader(loop=loop)
        super().__init__(self.reader, loop=loop)
        self._clock = loop
        self._listeners: dict[int, Listener] = {}
        self._rest = b""
        self._is_foreign = False
        self._heartbeat_s = heartbeat_s
        self._heard_at_s = self._told_at_s = loop.time()
        self._watch: asyncio.TimerHandle | None = None
        self._socket: asyncio.Transport | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._gone_because: str | None = None
        #: What the broker said when it closed the connection.
        self.closing: Closing | None = None
        #: Why the broker takes no publications now, and who is told when that changes.
        self.blocked: str | None = None
        self.on_blocked: Callable[[str | None], None] | None = None
        self.unblocked = asyncio.Event()
        self.unblocked.set()

    @property
    def gone(self) -> str | None:
        """Why the connection is gone; None while it is not."""
        if self._gone_because is None and (self._socket is None or self._socket.is_closing()):
            return "the connection is closing"
        return self._gone_because

    @property
    def writer(self) -> asyncio.StreamWriter:
        """What aiormq writes with."""
        assert self._writer is not None
        return self._writer

    def listen(self, channel: int, listener: Listener) -> None:
        """Let *listener* have the frames of *channel* from now on."""
        self._listeners[channel] = listener

    def leave(self, channel: int, listener: Listener) -> None:
        """Let aiormq have the frames of *channel* again, if *listener* had them."""
        if self._listeners.get(channel) is listener:
            del self._listeners[channel]

    def write(self, frames: bytes) -> None:
        """Send *frames*, unless the connection is gone: its listeners know by then."""
        if self.gone is None:
            self.writer.write(frames)

    async def drain(self) -> None:
        """Wait until the socket has taken most of what was written."""
        if self.gone is None:
            await self.writer.drain()

    def abort(self, why: str) -> None:
        """Let go of the socket at once."""
        self._gone_because = self._gone_because or why
        if self._socket is not None:
            with suppress(AttributeError):  # Python before 3.11.5, where TLS has ended by itself
                self._socket.abort()

    async def closed(self) -> None:
        """Return when the socket is closed; call ``abort`` before."""
        if self._writer is not None:
            with suppress(Exception):
                await self._writer.wait_closed()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to watch the clock."""
        super().connection_made(transport)
        # What a connection is over, even where its class says otherwise, as uvloop's does.
        socket = cast("asyncio.Transport", transport)
        self._socket = socket
        self._writer = asyncio.StreamWriter(socket, self, self.reader, self._clock)
        self._look_at_the_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every listener, and aiormq."""
        if self._watch is not None:
            self._watch.cancel()
        why = self._gone_because = self._gone_because or self._epitaph(exc)
        listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            listener.lost(why)
        self.unblocked.set()  # who waited to publish finds out that it is over
        super().connection_lost(exc)

    def eof_received(self) -> bool:
        """Let the socket close itself: a broker that sends no more takes no more either."""
        super().eof_received()
        return False

    def data_received(self, data: bytes) -> None:
        """Hand out the frames in *data*, and keep the beginning of one that has not come whole."""
        self._heard_at_s = self._clock.time()
        if self._rest:
            data, self._rest = self._rest + data, b""
        if self._is_foreign or (data[0] == _PROTOCOL_HEADER and not self._listeners):
            self._is_foreign = True  # a broker that does not speak AMQP 0-9-1: aiormq says so
            super().data_received(data)
            return
        at, end, size = 0, 0, len(data)
        for_aiormq: list[bytes] = []
        while size - at >= FRAME_EXTRA:
            kind, channel, length = FRAME.unpack_from(data, at)
            end = at + length + FRAME_EXTRA
            if end > size:
                break
            if channel == 0:
                self._hear_of_the_connection(data[at + 7 : end - 1])
            listener = self._listeners.get(channel)
            if listener is None or not listener.hear(kind, data[at + 7 : end - 1]):
                for_aiormq.append(data[at:end])
            at = end
        self._rest = data[at:]
        self._tell_aiormq(for_aiormq)

    def _tell_aiormq(self, frames: list[bytes]) -> None:
        if not frames and self._heard_at_s - self._told_at_s < TELL_AIORMQ_S:
            return
        self._told_at_s = self._heard_at_s
        super().data_received(b"".join(frames) or HEARTBEAT)

    def _hear_of_the_connection(self, payload: bytes) -> None:
        if payload[:4] == CONNECTION_BLOCKED:
            self._set_blocked(read_blocked(payload))
        elif payload[:4] == CONNECTION_UNBLOCKED:
            self._set_blocked(None)
        elif payload[:4] == CONNECTION_CLOSE:
            self.closing = read_closing(payload)

    def _epitaph(self, exc: Exception | None) -> str:
        if self.closing is not None:
            return f"the broker closed the connection: {self.closing.text}"
        return f"the connection was lost: {exc}" if exc else "the broker closed the connection"

    def _set_blocked(self, why: str | None) -> None:
        self.blocked = why
        if why is None:
            self.unblocked.set()
        else:
            self.unblocked.clear()
        if self.on_blocked is not None:
            self.on_blocked(why)

    def _look_at_the_clock(self) -> None:
        """Let go of a broker that has fallen silent: a half-open connection says nothing by itself."""
        silent_max_s = SILENT_HEARTBEATS_MAX * self._heartbeat_s
        silent_s = self._clock.time() - self._heard_at_s
        if silent_s >= silent_max_s:
            self.abort(f"the broker was silent for {silent_s:.0f} s")
            return
        self._watch = self._clock.call_later(silent_max_s - silent_s, self._look_at_the_clock)
