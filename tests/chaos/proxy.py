"""A network that a test can trouble: a proxy in a process of its own, and the orders it takes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tests.chaos.weather import DIRECTIONS, Cut, Direction, Weather

ROOT = Path(__file__).resolve().parents[2]
#: An order is a line to a process that does nothing else.
PATIENCE_S = 30.0


class Proxy:
    """Stands before one server; clients connect to ``port`` in place of the server's."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self._turn = asyncio.Lock()
        self.port = port

    def url(self, direct: str) -> str:
        """Return *direct*, the URL of the server, by way of this proxy."""
        parts = urlsplit(direct)
        assert parts.port is not None
        where = parts.netloc.removesuffix(f":{parts.port}")
        return urlunsplit(parts._replace(netloc=f"{where}:{self.port}"))

    async def weather(self, weather: Weather, *directions: Direction) -> None:
        """Let bytes fare so, in these directions or in both."""
        await self._order("weather", directions=list(directions or DIRECTIONS), **asdict(weather))

    async def cut(self, cut: Cut) -> None:
        """Reset connections where they carry a pattern, in place of any cut before."""
        await self._order("cut", **cut.to_json())

    async def mend(self) -> None:
        """Let everything pass again; what is broken stays so."""
        await self._order("mend")

    async def refuse(self) -> None:
        """Refuse new connections."""
        await self._order("refuse")

    async def accept(self) -> None:
        """Accept new connections again."""
        await self._order("accept")

    async def reset(self) -> int:
        """Reset every connection; return how many there were."""
        return int((await self._order("reset"))["reset"])

    async def counts(self) -> dict[str, int]:
        """Return how many connections are open, were accepted, reset and cut, and patterns seen."""
        return await self._order("count")

    async def _order(self, order: str, **details: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._turn, asyncio.timeout(PATIENCE_S):
            self._process.stdin.write(json.dumps({"order": order, **details}).encode() + b"\n")
            answer: dict[str, Any] = json.loads(await self._process.stdout.readline())
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer


@contextlib.asynccontextmanager
async def proxy_before(port: int, *, seed: int = 0) -> AsyncIterator[Proxy]:
    """Stand before *port* of the loopback while the block lasts; *seed* is for its chance."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.chaos.proxy_process",
        str(port),
        str(seed),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            said = json.loads(await process.stdout.readline())
        yield Proxy(process, said["port"])
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        # Or the transport complains when it is collected.
        process._transport.close()  # type: ignore[attr-defined]  # asyncio has no public way
