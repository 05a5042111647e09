"""Answers ``/healthz`` and ``/readyz`` over HTTP, and nothing else.

One request per connection, GET or HEAD. How large a request is, how long it takes and how many are
under way at a time is bounded, so that whoever asks badly only harms themselves. This is for probes
inside a cluster: there is no TLS and no authentication, and nothing that is told is a secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import NamedTuple

from tidewheel.journal.errors import InvalidRequest
from tidewheel.workers.config import Address
from tidewheel.workers.health import Health, Report

logger = logging.getLogger("tidewheel.process")

#: A probe's request is a few hundred bytes.
REQUEST_MAX_BYTES = 8 * 1024
#: From the connection to the end of the answer.
REQUEST_TIMEOUT_S = 5.0
#: Requests under way at a time.
CONNECTIONS_MAX = 32
_WORDS_OF_A_REQUEST = 3


class _Answer(NamedTuple):
    status: HTTPStatus
    body: bytes
    allow: bool = False


class HealthServer:
    """A role: listens while it runs. ``address`` is where, once it is started."""

    def __init__(self, address: Address, health: Health) -> None:
        self.address = address
        self._pages: dict[str, Callable[[], Awaitable[Report]]] = {
            "/healthz": health.live,
            "/readyz": health.ready,
        }
        self._health = health
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to listen."""
        try:
            self._server = await asyncio.start_server(
                self._begin, *self.address, limit=REQUEST_MAX_BYTES, backlog=CONNECTIONS_MAX
            )
        except OSError as problem:
            message = f"--health {self.address.host}:{self.address.port} cannot be listened on: {problem}"
            raise InvalidRequest(message) from problem
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = Address(host, port)
        shown = f"[{host}]" if ":" in host else host
        logger.info("health at http://%s:%d/healthz and /readyz", shown, port)

    async def stop(self) -> None:
        """Listen no more. May be called twice."""
        if self._server is not None:
            self._server.close()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None
        await self._health.close()

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer), name="tidewheel-health-request")
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                wants_body, answer = await self._answer(reader)
                writer.write(_encoded(answer, wants_body=wants_body))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # whoever asked has left, or takes too long
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[bool, _Answer]:
        """Read one request; return whether its answer has a body, and the answer."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return True, _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != _WORDS_OF_A_REQUEST or not words[2].startswith("HTTP/1."):
            return True, _refusal(HTTPStatus.BAD_REQUEST)
        method, target, _ = words
        page = self._pages.get(target.partition("?")[0])
        if page is None:
            return method != "HEAD", _refusal(HTTPStatus.NOT_FOUND)
        if method not in ("GET", "HEAD"):
            return True, _refusal(HTTPStatus.METHOD_NOT_ALLOWED, allow=True)
        report = await page()
        status = HTTPStatus.OK if report.is_ok else HTTPStatus.SERVICE_UNAVAILABLE
        return method != "HEAD", _Answer(status, _json(report.to_json()))


def _refusal(status: HTTPStatus, *, allow: bool = False) -> _Answer:
    return _Answer(status, _json({"status": "refused", "message": status.phrase}), allow)


def _json(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _encoded(answer: _Answer, *, wants_body: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *(["Allow: GET, HEAD"] if answer.allow else []),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (answer.body if wants_body else b"")
