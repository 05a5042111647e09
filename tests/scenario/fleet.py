"""A fleet on real servers: the command in processes of its own, Postgres and RabbitMQ between them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.processes import COMMAND, Service

COMMAND_SECONDS_MAX = 60

APP = """
import asyncio
import time
from pathlib import Path

from tidewheel import App, Context, Retry, current_task

app = App("yard")
LOG = Path("executed.log")


def note(what):
    with LOG.open("a") as log:
        log.write(f"{what} {current_task().run_id} {current_task().attempt}\\n")


@app.task(retry=Retry(max_attempts=5, initial=0.01))
def load(cart: int) -> int:
    note("load")
    return cart + 1


@app.task(queue="heavy", inline=False)
async def weigh(cart: int) -> int:
    note("weigh")
    return cart * 10


@app.task(retry=Retry(max_attempts=5, initial=0.01))
async def slow(cart: int) -> int:
    note("slow-begins")
    while not Path("open-the-gate").exists():
        await asyncio.sleep(0.02)
    note("slow-ends")
    return cart


@app.workflow
async def trip(ctx: Context, cart: int) -> int:
    loaded = await ctx.invoke(load, cart)
    weighed, again = await asyncio.gather(ctx.invoke(weigh, loaded), ctx.invoke(load, loaded))
    return weighed + again


@app.workflow
async def gated(ctx: Context, cart: int) -> str:
    done = await ctx.invoke(slow, cart)
    word = await ctx.signal("word")
    await ctx.sleep(0.2)
    return f"{done} {word}"
"""


class Fleet:
    """Where everything is, and how its processes are started."""

    def __init__(self, folder: Path, store: str, broker: str) -> None:
        self.folder = folder
        self.settings = {"TIDEWHEEL_STORE": store, "TIDEWHEEL_BROKER": broker, "TIDEWHEEL_LEASE": "2"}
        self._services: list[Service] = []
        (folder / "yard.py").write_text(APP)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env=os.environ | self.settings,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )

    def json_of(self, *arguments: str) -> Any:
        """Run a command with ``--json``, and return what it says."""
        ran = self.run(*arguments, "--json")
        assert ran.stdout, ran.stderr
        return json.loads(ran.stdout)

    def start(self, *arguments: str) -> Service:
        """Start a process that goes on, and wait until it is ready."""
        with self._environment():
            service = Service(*arguments, folder=self.folder)
        self._services.append(service)
        service.wait_for("ready")
        return service

    def executed(self) -> list[tuple[str, str, int]]:
        """Return what tasks noted, in order: what, of which run, in which attempt."""
        log = self.folder / "executed.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [(what, run, int(attempt)) for what, run, attempt in (line.split() for line in lines)]

    def close(self) -> None:
        """Leave nothing running."""
        for service in self._services:
            service.end()

    @contextmanager
    def _environment(self) -> Iterator[None]:
        before = dict(os.environ)
        os.environ.update(self.settings)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
