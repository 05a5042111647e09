"""Child processes of a test: started quickly, waited for with a bound, ended with the test."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from tests.faults.forking import answer_file

ROOT = Path(__file__).resolve().parents[2]
#: What the children of this tier need.
PRELOADED = (
    "tests.faults.command_case",
    "tests.faults.crash_case",
    "tests.faults.program",
    "tidewheel.broker.embedded.transport",
    "tidewheel.broker.kombu_bridge",
    "tidewheel.store.migrations",
    "tidewheel.store.sqlite.store",
)
#: Nothing here takes nearly as long, unless it never comes.
PATIENCE_S = 30.0


class Child:
    """One process; ``pid`` is there from the beginning."""

    def __init__(self, number: int, log: Path) -> None:
        self.number = number
        self.log = log
        self.pid = 0
        self.began = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def code(self) -> int:
        """Wait for its end, and return its exit code: negative, the signal that ended it."""
        return await asyncio.wait_for(asyncio.shield(self.ended), PATIENCE_S)

    async def answer(self) -> Any:
        """Wait for its end, which has to be a good one, and return what its function returned."""
        code = await self.code()
        assert code == 0, f"exit code {code}\n{self.said()}"
        return json.loads(answer_file(self.log).read_text("utf-8"))

    def said(self) -> str:
        """Return its output so far."""
        return self.log.read_text("utf-8") if self.log.exists() else ""

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it is there to get it."""
        if not self.ended.done():
            # It may have ended a moment ago, and whoever started it is about to say so.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Nursery:
    """Starts children through ``forking``."""

    def __init__(self, folder: Path, name: str, server: asyncio.subprocess.Process) -> None:
        self._folder = folder
        self._name = name
        self._server = server
        #: Also the id of the group that all children are in.
        self.server_pid = server.pid
        self._numbers = itertools.count()
        self._children: dict[int, Child] = {}

    async def start(self, function: str, **arguments: Any) -> Child:
        """Call *function*, ``package.module:name``, in a process of its own."""
        number = next(self._numbers)
        child = self._children[number] = Child(number, self._folder / f"{self._name}-{number}.log")
        request = {
            "number": number,
            "function": function,
            "arguments": arguments,
            "log": str(child.log),
        }
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(request).encode() + b"\n")
        await self._server.stdin.drain()
        await asyncio.wait_for(child.began, PATIENCE_S)
        return child

    async def call(self, function: str, **arguments: Any) -> Any:
        """Call *function* in a process of its own, and return what it returned."""
        child = await self.start(function, **arguments)
        return await child.answer()

    async def listen(self) -> None:
        """Hear what the server says, until it ends."""
        assert self._server.stdout is not None
        while line := await self._server.stdout.readline():
            said = json.loads(line)
            if "pid" in said:
                child = self._children[said["number"]]
                child.pid = said["pid"]
                child.began.set_result(None)
            elif "code" in said:
                self._children[said["number"]].ended.set_result(said["code"])


@contextlib.asynccontextmanager
async def nursery_in(
    folder: Path, preloaded: Sequence[str] = PRELOADED, *, name: str = "child", **variables: str
) -> AsyncIterator[Nursery]:
    """Start children while the block lasts, quickly if *preloaded* is all that they import.

    What is left of them at its end is killed. *name* is what their logs are called after, *variables* go into
    their environment.
    """
    environment = {key: text for key, text in os.environ.items() if not key.startswith("TIDEWHEEL_")}
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.faults.forking",
        *preloaded,
        cwd=ROOT,
        env=environment | variables,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    nursery = Nursery(folder, name, server)
    listening = asyncio.create_task(nursery.listen())
    try:
        yield nursery
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        await server.wait()
        await listening
        # Or the transport complains when it is collected.
        server._transport.close()  # type: ignore[attr-defined]  # asyncio has no public way
