"""The process of a proxy: a network between clients and one server that misbehaves as it is told.

``python -m tests.chaos.proxy_process PORT SEED`` stands before that port of the loopback. It says on standard
output where it listens, then takes orders from standard input and answers each, one line of JSON each. When
standard input closes it ends: nothing stays behind where whoever started it was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import struct
import sys
from collections import deque
from typing import Any

from tests.chaos.weather import DIRECTIONS, Cut, Direction, Seeker, Shears, Weather

HOST = "127.0.0.1"
_BACKLOG = 512
#: To linger for no time at all means to end a connection with a reset.
_NO_TIME = struct.pack("ii", 1, 0)


class Proxy:
    """Where connections are accepted, and what is done to them now."""

    def __init__(self, port: int, seed: int) -> None:
        self.target = port
        self.chance = random.Random(seed)
        self.weather: dict[Direction, Weather] = dict.fromkeys(DIRECTIONS, Weather())
        self.shears: Shears | None = None
        self.links: set[Link] = set()
        self.accepted = 0
        self.resets = 0
        self.cuts = 0
        # Bound for as long as the proxy lives, but never listening: nobody else gets the port meanwhile.
        self._place = _bound(0)
        self.port: int = self._place.getsockname()[1]
        self._listener: asyncio.Server | None = None

    async def accept(self) -> None:
        """Accept connections."""
        if self._listener is None:
            loop = asyncio.get_running_loop()
            self._listener = await loop.create_server(
                lambda: Link(self).client, sock=_bound(self.port), backlog=_BACKLOG
            )

    async def refuse(self) -> None:
        """Accept no connections; those that there are stay."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def reset(self) -> int:
        """End every connection with a reset, on both its sides; return how many there were."""
        broken = [*self.links]
        for link in broken:
            link.reset()
        self.resets += len(broken)
        return len(broken)

    async def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Do what an order asks, and return the answer."""
        match order.pop("order"):
            case "weather":
                wanted: list[Direction] = order.pop("directions")
                self.weather |= dict.fromkeys(wanted, Weather(**order))
            case "cut":
                self.shears = Shears(Cut.from_json(order), self.chance)
            case "mend":
                self.weather = dict.fromkeys(DIRECTIONS, Weather())
                self.shears = None
                await self.accept()
            case "refuse":
                await self.refuse()
            case "accept":
                await self.accept()
            case "reset":
                return {"reset": self.reset()}
            case "count":
                pass
            case unknown:
                return {"error": f"unknown order {unknown!r}"}
        return self.counts()

    def counts(self) -> dict[str, Any]:
        """Return what was done so far."""
        return {
            "open": len(self.links),
            "accepted": self.accepted,
            "resets": self.resets,
            "cuts": self.cuts,
            "seen": 0 if self.shears is None else self.shears.seen,
        }


class Link:
    """A client's connection and the one that was made to the server for it."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.client = End(self, "up")
        self.server = End(self, "down")
        self._connecting: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """A client has come: reach the server for it."""
        self.proxy.accepted += 1
        self.proxy.links.add(self)
        loop = asyncio.get_running_loop()
        # Not at once: early Pythons 3.11 begin to read after this whatever was said before.
        loop.call_soon(self.client.pause_reading)
        self._connecting = loop.create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self.server, HOST, self.proxy.target)
        except OSError:
            self.reset()
        else:
            self.client.resume_reading()

    def other(self, end: End) -> End:
        """Return the far end."""
        return self.server if end is self.client else self.client

    def reset(self) -> None:
        """End both connections with a reset."""
        self.proxy.links.discard(self)
        if self._connecting is not None:
            self._connecting.cancel()
        for end in (self.client, self.server):
            end.reset()

    def ended(self, end: End, problem: Exception | None) -> None:
        """One side has gone: so does the other, unless nobody can tell it."""
        other = self.other(end)
        if end.is_black:
            return
        if problem is not None:
            self.reset()
            return
        end.finish_into(other)
        if other.is_closed:
            self.proxy.links.discard(self)


class End(asyncio.Protocol):
    """One side of a link: what it receives goes to the other side, in one direction."""

    def __init__(self, link: Link, direction: Direction) -> None:
        self._link = link
        self._direction = direction
        self._transport: asyncio.Transport | None = None
        self._seeker: Seeker | None = None
        #: Bytes on their way to the other side; None: the end.
        self._under_way: deque[bytes | None] = deque()
        self._due = 0.0
        self.is_black = False
        self.is_closed = False
        #: Whether the peer sends no more, and whether it was told that nothing more comes.
        self._heard_all = False
        self._said_all = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self is self._link.client:
            self._link.begin()

    def data_received(self, data: bytes) -> None:
        """Pass it on, late, in part, or not at all."""
        proxy = self._link.proxy
        weather = proxy.weather[self._direction]
        self.is_black = self.is_black or weather.is_black
        if self.is_black:
            return
        is_fatal = False
        shears = proxy.shears
        if shears is not None and shears.cut.direction == self._direction:
            if self._seeker is None or self._seeker.shears is not shears:
                self._seeker = Seeker(shears)
            data, is_fatal = self._seeker.passed(data)
        self._pass_on(data, weather)
        if is_fatal:
            proxy.cuts += 1
            self._link.reset()

    def eof_received(self) -> bool:
        """The peer sends no more; it may still listen."""
        weather = self._link.proxy.weather[self._direction]
        self.is_black = self.is_black or weather.is_black
        if not self.is_black:
            self._pass_on(None, weather)
            self._heard_all = True
            asyncio.get_running_loop().call_soon(self._close_if_over)
        return True

    def connection_lost(self, problem: Exception | None) -> None:
        """Tell the link."""
        if not self.is_closed:
            self.is_closed = True
            self._link.ended(self, problem)

    def pause_writing(self) -> None:
        """This side is full: hear no more of the other."""
        self._link.other(self).pause_reading()

    def resume_writing(self) -> None:
        """There is room again."""
        self._link.other(self).resume_reading()

    def pause_reading(self) -> None:
        """Take nothing from this side."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take from this side again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def write(self, data: bytes | None) -> None:
        """Send to this side's peer."""
        if self._transport is None or self._transport.is_closing():
            return
        if data is None:
            self._transport.write_eof()
            self._said_all = True
            asyncio.get_running_loop().call_soon(self._close_if_over)
        else:
            self._transport.write(data)

    def _close_if_over(self) -> None:
        """Let go of a connection that ended in both directions: nothing else would tell of it."""
        if self._heard_all and self._said_all:
            self.close()

    def finish_into(self, other: End) -> None:
        """What is under way still arrives, and then the end."""
        self._pass_on(None, Weather())
        if not self._under_way:
            other.close()

    def close(self) -> None:
        """End this side in good order."""
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """End this side with a reset."""
        self.is_closed = True
        self._under_way.clear()
        if self._transport is not None:
            with contextlib.suppress(OSError):
                self._transport.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, _NO_TIME
                )
            self._transport.abort()

    def _pass_on(self, data: bytes | None, weather: Weather) -> None:
        """Write to the other side, now or when its time has come, and never out of order."""
        loop = asyncio.get_running_loop()
        delay_s = weather.delay_s
        if weather.jitter_s:
            delay_s += self._link.proxy.chance.uniform(0, weather.jitter_s)
        if not delay_s and not self._under_way:
            self._link.other(self).write(data)
            return
        self._due = max(self._due, loop.time() + delay_s)
        self._under_way.append(data)
        loop.call_at(self._due, self._arrive)

    def _arrive(self) -> None:
        if not self._under_way:
            return
        other = self._link.other(self)
        other.write(self._under_way.popleft())
        if self.is_closed and not self._under_way:
            other.close()


def _bound(port: int) -> socket.socket:
    """Return a socket that has *port* and does not listen yet."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((HOST, port))
    return made


async def _serve(port: int, seed: int) -> None:
    proxy = Proxy(port, seed)
    await proxy.accept()
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    _say({"port": proxy.port})
    while line := await orders.readline():
        _say(await proxy.obey(json.loads(line)))


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
