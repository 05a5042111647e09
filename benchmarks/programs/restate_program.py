"""Restate: the server, a service of the Python SDK in granian, and calls through the ingress."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any, Self

import restate

from benchmarks.programs.answering import Watch, answer, begin, setting, wait_until

#: Calls that are open at a time; more brought nothing.
CONNECTIONS = 100

bench = restate.Service("Bench")


async def step(number: int) -> int:
    """Do nothing."""
    return number


@bench.handler()
async def sequence(ctx: restate.Context, steps: int) -> int:
    """One step after the other."""
    total = 0
    for number in range(steps):
        total += await ctx.run_typed("step", step, number=number)
    return total


@bench.handler()
async def fan(ctx: restate.Context, steps: int) -> int:
    """All steps at once."""
    futures = [ctx.run_typed("step", step, number=number) for number in range(steps)]
    return sum([await done for done in await restate.gather(*futures)])


@bench.handler()
async def leaf(ctx: restate.Context, number: int) -> int:
    """One step."""
    return await ctx.run_typed("step", step, number=number)


@bench.handler()
async def called_fan(ctx: restate.Context, tasks: int) -> int:
    """Calls of another handler, all at once."""
    futures = [ctx.service_call(leaf, arg=number) for number in range(tasks)]
    return sum([await done for done in await restate.gather(*futures)])


app = restate.app(services=[bench])


class Ingress:
    """A connection to the server that costs the submitter little."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def call(self, handler: str, argument: int) -> int:
        """Call, and wait for the result."""
        body = str(argument).encode()
        head = (
            f"POST /Bench/{handler} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
            f"idempotency-key: {uuid.uuid4()}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        status, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines if line)
        if "content-length" in headers:
            data = await self._reader.readexactly(int(headers["content-length"]))
        else:
            data = b""
            while size := int(await self._reader.readline(), 16):
                data += (await self._reader.readexactly(size + 2))[:-2]
            await self._reader.readline()
        assert " 200 " in status, (status, data)
        return int(data)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _accepts(port: int) -> bool:
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0


def _start_server(folder: Path) -> tuple[int, int]:
    """Return the ports of its ingress and its admin interface."""
    ingress, admin, node = _free_port(), _free_port(), _free_port()
    told = {
        "RESTATE_BASE_DIR": str(folder),
        "RESTATE_NODE_NAME": "bench",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "error",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
        "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}/",
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
    }
    subprocess.Popen([setting("SERVER")], env={**os.environ, **told}, stdin=subprocess.DEVNULL)  # noqa: S603 - what this file says
    wait_until(lambda: _accepts(ingress) and _accepts(admin))
    return ingress, admin


def _start_service() -> int:
    port = _free_port()
    command = [sys.executable, "-m", "granian", "--interface", "asgi", "--http", "2", "--loop", "uvloop"]
    place = ["--host", "127.0.0.1", "--port", str(port), "--log-level", "warning", "--workers", "1"]
    subprocess.Popen(  # noqa: S603 - what was installed for this
        [*command, *place, "benchmarks.programs.restate_program:app"], stdin=subprocess.DEVNULL
    )
    wait_until(lambda: _accepts(port))
    return port


def _register(admin: int, service: int) -> None:
    body = f'{{"uri": "http://127.0.0.1:{service}", "force": true}}'.encode()
    headers = {"content-type": "application/json"}
    for _ in range(100):
        request = urllib.request.Request(f"http://127.0.0.1:{admin}/deployments", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=20):  # noqa: S310 - the server that was just started
                return
        except OSError:
            time.sleep(0.1)
    message = "the service could not be registered"
    raise RuntimeError(message)


def main() -> None:
    """Start everything and answer."""
    answers = begin()
    ingress, admin = _start_server(Path(setting("FOLDER")))
    _register(admin, _start_service())

    async def calls(handler: str, argument: int, expected: int, count: int, connections: int) -> list[float]:
        todo = iter(range(count))
        latencies: list[float] = []

        async def one() -> None:
            async with Ingress(ingress) as connection:
                for _ in todo:
                    watch = Watch()
                    assert await connection.call(handler, argument) == expected
                    latencies.append(watch.seconds)

        await asyncio.gather(*(one() for _ in range(connections)))
        return latencies

    def timed(handler: str, argument: int, expected: int, count: int = 1) -> dict[str, Any]:
        watch = Watch()
        asyncio.run(calls(handler, argument, expected, count, min(count, CONNECTIONS)))
        return {"seconds": watch.seconds}

    timed("sequence", 5, 10, 20)

    def many(runs: int, steps: int) -> dict[str, Any]:
        return timed("sequence", steps, sum(range(steps)), runs)

    def latency(repeats: int, steps: int) -> dict[str, Any]:
        return {"latencies": asyncio.run(calls("sequence", steps, sum(range(steps)), repeats, 1))}

    def long(steps: int) -> dict[str, Any]:
        return timed("sequence", steps, sum(range(steps)))

    def fan_out(tasks: int, *, queued: bool = False) -> dict[str, Any]:
        handler = "called_fan" if queued else "fan"
        timed(handler, 2, 1)
        return timed(handler, tasks, sum(range(tasks)))

    answer(answers, {"many": many, "latency": latency, "long": long, "fan_out": fan_out})


if __name__ == "__main__":
    main()
