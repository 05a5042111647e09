"""A fleet on one machine: private servers, troubled networks before them, and worker processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.chaos.checker import breaches
from tests.chaos.journaled import EVENTS
from tests.chaos.ledger import Ledger
from tests.chaos.points import Notes
from tests.chaos.program import PRELOADED, arms_file
from tests.chaos.proxy import Proxy, proxy_before
from tests.chaos.specimen import make_tables
from tests.faults.nursery import Child, Nursery, nursery_in
from tests.servers.postgres import PrivatePostgres
from tests.servers.rabbitmq import PrivateRabbit

#: The database that those of fleets are copied from.
TEMPLATE = "fleet_template"
#: What a worker says when it works.
READY = "tests.chaos ready"
#: A worker that does not begin within this time never does.
READY_S = 30.0


@dataclass(frozen=True, slots=True)
class Servers:
    """The two servers of a fleet; whoever has them may crash them."""

    postgres: PrivatePostgres
    rabbit: PrivateRabbit


@dataclass
class Fleet:
    """What a test has of a fleet. ``urls`` lead through the networks, ``direct`` does not."""

    folder: Path
    servers: Servers
    networks: dict[str, Proxy]
    nursery: Nursery
    direct: list[str]
    config: dict[str, Any] = field(default_factory=dict)
    workers: list[Child] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.folder / "ledger.jsonl")
        #: By their pids, so that their logs are not read over and over.
        self._ready: set[int] = set()
        self.notes = Notes(self.folder / "notes.jsonl")
        self.urls = [
            self.networks["postgres"].url(self.direct[0]),
            self.networks["broker"].url(self.direct[1]),
        ]

    async def serve(
        self,
        armed: tuple[str, int] | None = None,
        *,
        urls: list[str] | None = None,
        nursery: Nursery | None = None,
        mutant: str | None = None,
        **config: Any,
    ) -> Child:
        """Start a worker; it is not ready yet. *armed* is a point to die at, and at which occurrence."""
        child = await (nursery or self.nursery).start(
            "tests.chaos.program:serve",
            folder=str(self.folder),
            urls=urls or self.urls,
            known=self.notes.points,
            armed=armed,
            mutant=mutant,
            config=self.config | config,
        )
        self.workers.append(child)
        return child

    async def serve_ready(self, **config: Any) -> Child:
        """Start a worker, and wait until it works."""
        worker = await self.serve(**config)
        await self.ready(worker)
        assert not worker.ended.done(), worker.said()
        return worker

    def let(self, name: str, word: str = "") -> None:
        """Let bodies of the corner go on that wait for *name*."""
        new = self.folder / f"{name}.new"
        new.write_text(word, "utf-8")
        new.replace(self.folder / name)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Execute a statement of the test's own."""
        with psycopg.connect(self.direct[0]) as connection:
            cursor = connection.execute(sql.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def events(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Execute a statement of the test's own over ``events``: a row for each event of each journal."""
        return self.rows(EVENTS + sql, *values)

    def breaches(self) -> list[str]:
        """Return which rules the journals and rows break, whatever the workload."""
        return [str(finding) for finding in breaches(self.direct[0])]

    async def arm(self, worker: Child, point: str, occurrence: int) -> None:
        """Let a worker die at a point, from now on."""
        order = {"point": point, "occurrence": occurrence}
        file = arms_file(self.folder, worker.pid)
        # In one step: the worker must not read half of it.
        new = file.with_suffix(".new")
        new.write_text(json.dumps(order), "utf-8")
        new.replace(file)
        worker.send(signal.SIGUSR1)

    def is_ready(self, worker: Child) -> bool:
        """Tell whether a worker has begun to work."""
        if worker.pid not in self._ready and READY in worker.said():
            self._ready.add(worker.pid)
        return worker.pid in self._ready

    async def ready(self, worker: Child) -> None:
        """Wait until a worker works, or has ended."""
        async with asyncio.timeout(READY_S):
            while not self.is_ready(worker) and not worker.ended.done():  # noqa: ASYNC110 - it says so in a file
                await asyncio.sleep(0.02)

    async def kill(self, worker: Child) -> None:
        """Kill a worker; it is gone when this returns."""
        worker.send(signal.SIGKILL)
        await worker.code()
        self.workers.remove(worker)


@contextlib.asynccontextmanager
async def fleet_on(
    servers: Servers, folder: Path, *, name: str, seed: int = 0, **config: Any
) -> AsyncIterator[Fleet]:
    """Make a fleet without workers, with a database and a virtual host called *name* on *servers*."""
    servers.rabbit.add_vhost(name)
    direct = [await new_database(servers.postgres, name), servers.rabbit.url_of(name)]
    async with (
        proxy_before(servers.postgres.port, seed=seed) as before_postgres,
        proxy_before(servers.rabbit.port, seed=seed + 1) as before_rabbit,
        nursery_in(folder, PRELOADED) as nursery,
    ):
        networks = {"postgres": before_postgres, "broker": before_rabbit}
        yield Fleet(folder, servers, networks, nursery, direct, config)


async def new_database(server: PrivatePostgres, name: str) -> str:
    """Make a database with all tables, a copy of one that is made the first time: that is quicker."""
    with psycopg.connect(server.url) as connection:
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (TEMPLATE,)).fetchone()
    if known is None:
        await make_tables(server.create_database(TEMPLATE))
    return server.create_database(name, TEMPLATE)
