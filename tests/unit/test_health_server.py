"""The small HTTP server that answers probes: what it answers, and what it does not put up with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest

from tidewheel import InvalidRequest
from tidewheel.workers import health_server
from tidewheel.workers.config import Address
from tidewheel.workers.health import Health
from tidewheel.workers.health_server import CONNECTIONS_MAX, REQUEST_MAX_BYTES, HealthServer


@pytest.fixture
def health() -> Health:
    """A process that has begun and needs nothing."""
    made = Health()
    made.begin()
    return made


@pytest.fixture
async def server(health: Health) -> AsyncIterator[HealthServer]:
    """A server on a free port."""
    made = HealthServer(Address("127.0.0.1", 0), health)
    await made.start()
    yield made
    await made.stop()


async def ask(server: HealthServer, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes, and return status, headers and body of the answer."""
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split(" ")[1]), headers, body


async def until(holds: Callable[[], bool]) -> None:
    """Let the server do what it has to; it announces nothing."""
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - as said
            await asyncio.sleep(0)


async def test_what_is_well_is_200_and_what_is_not_is_503(server: HealthServer, health: Health) -> None:
    """The body says the same, and what is wrong."""
    status, headers, body = await ask(server, b"GET /readyz?verbose HTTP/1.1\r\nHost: x\r\n\r\n")
    health.drain()
    after, _, why = await ask(server, b"GET /readyz HTTP/1.0\r\n\r\n")
    lives, _, _ = await ask(server, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")

    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body) == {"status": "ok", "checks": {}}
    assert after == 503
    assert json.loads(why) == {"status": "failing", "checks": {"draining": "it was told to stop"}}
    assert lives == 200


async def test_head_is_get_without_the_body(server: HealthServer) -> None:
    """The length is that of the body which was left out."""
    _, got, body = await ask(server, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    status, headers, nothing = await ask(server, b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n")

    assert (status, nothing) == (200, b"")
    assert headers == got
    assert int(headers["content-length"]) == len(body)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 404),
        (b"POST /healthz HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 405),
        (b"DELETE /readyz HTTP/1.1\r\n\r\n", 405),
        (b"GET /healthz\r\n\r\n", 400),
        (b"GET /healthz HTTP/2\r\n\r\n", 400),
        (b"\x16\x03\x01 hello\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nX: " + b"x" * REQUEST_MAX_BYTES * 2 + b"\r\n\r\n", 431),
    ],
)
async def test_what_is_no_probe_is_refused(server: HealthServer, request_: bytes, status: int) -> None:
    """Each by its own status; none is taken for a probe."""
    answered, headers, body = await ask(server, request_)

    assert answered == status
    assert json.loads(body)["status"] == "refused"
    assert (headers.get("allow") == "get, head") == (status == 405)


async def test_whoever_sends_nothing_is_not_waited_for(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that does not end within its time is hung up on."""
    monkeypatch.setattr(health_server, "REQUEST_TIMEOUT_S", 0.05)
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write(b"GET /healthz HTTP/1.1\r\n")

    try:
        answer = await reader.read()
    except ConnectionResetError:
        answer = b""

    assert answer == b""
    writer.close()


async def test_only_so_many_connections_are_served_at_a_time(server: HealthServer) -> None:
    """Further ones are hung up on at once; when there is room again, probes are answered."""
    idle = [await asyncio.open_connection(*server.address) for _ in range(CONNECTIONS_MAX)]
    await until(lambda: len(server._open) == CONNECTIONS_MAX)

    reader, writer = await asyncio.open_connection(*server.address)
    try:
        refused = await reader.read()
    except ConnectionResetError:
        refused = b""
    writer.close()
    for _, one in idle:
        one.close()
        await one.wait_closed()
    await until(lambda: not server._open)
    status, _, _ = await ask(server, b"GET /healthz HTTP/1.1\r\n\r\n")

    assert refused == b""
    assert status == 200


async def test_an_address_that_is_taken_is_refused(server: HealthServer, health: Health) -> None:
    """Two processes cannot answer in one place: whoever comes second is told so."""
    second = HealthServer(server.address, health)

    with pytest.raises(InvalidRequest, match="cannot be listened on"):
        await second.start()
    await second.stop()


async def test_it_stops_with_requests_under_way(server: HealthServer) -> None:
    """Nobody who asks slowly can hold up the end of the process."""
    _, writer = await asyncio.open_connection(*server.address)
    await until(lambda: bool(server._open))

    await server.stop()
    await server.stop()

    assert server._open == set()
    writer.close()
