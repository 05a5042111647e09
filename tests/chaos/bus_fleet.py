"""The event pipeline on one machine: workers, relays and projectors in processes, and somebody who hears."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import psycopg

from tests.chaos.arrivals import Arrivals
from tests.chaos.bus_program import PRELOADED, READY
from tests.chaos.fleet import Servers, new_database
from tests.faults.nursery import Child, Nursery, nursery_in

#: What a process of the pipeline is.
Part: TypeAlias = Literal["worker", "relay", "projector"]
PARTS: tuple[Part, ...] = get_args(Part)

_PROGRAMS: Mapping[Part, str] = {
    "worker": "tests.chaos.bus_program:work",
    "relay": "tests.chaos.bus_program:relay",
    "projector": "tests.chaos.bus_program:project",
}
#: Whoever dies is missed soon. Nobody looks for runs whose events never came, and who misses an event is
#: patient: what was lost is not made good behind the back of whoever checks.
CONFIGS: Mapping[Part, dict[str, Any]] = {
    "worker": {},
    "relay": {"lease_s": 2.0},
    "projector": {"lease_s": 1.0, "patience_s": 5.0, "look_s": 1_000.0},
}
#: How many there are of each, but for the moments in which one is replaced.
WANTED: Mapping[Part, int] = {"worker": 2, "relay": 2, "projector": 2}
#: A process that does not begin within this time never does.
READY_S = 60.0


@dataclass
class BusFleet:
    """See the module. ``urls`` are the store's and the broker's; relays reach the broker by ``bus_url``."""

    folder: Path
    servers: Servers
    nursery: Nursery
    vhost: str
    urls: list[str]
    mutant: str | None = None
    wanted: Mapping[Part, int] = field(default_factory=lambda: WANTED)
    configs: Mapping[Part, dict[str, Any]] = field(default_factory=lambda: CONFIGS)
    children: dict[Part, list[Child]] = field(default_factory=lambda: {part: [] for part in PARTS})

    def __post_init__(self) -> None:
        self.bus_url = self.urls[1]
        self.arrivals = Arrivals(self.folder / "heard.jsonl")
        #: By their logs, so that these are not read over and over.
        self._ready: set[Path] = set()

    async def begin(self) -> None:
        """Start everything, and see to it that the broker does not forget the queues when it is killed."""
        await self.listen()
        await self.fill_up()
        for children in self.children.values():
            for child in children:
                await self.ready(child)
        self.servers.rabbit.settle()

    async def listen(self) -> None:
        """Let somebody hear, before there is anything to hear."""
        path = str(self.arrivals.path)
        await self.ready(
            await self.nursery.start("tests.chaos.bus_program:hear", url=self.urls[1], path=path)
        )

    async def fill_up(self) -> None:
        """Replace whoever has ended, whatever of; the new ones may not be ready yet."""
        for part, count in self.wanted.items():
            self.children[part] = self.alive(part)
            while len(self.children[part]) < count:
                self.children[part].append(await self.start(part))

    def alive(self, part: Part) -> list[Child]:
        """Return the processes that have not ended."""
        return [child for child in self.children[part] if not child.ended.done()]

    async def start(self, part: Part, *, dies: dict[str, int] | None = None) -> Child:
        """Start a process that nobody replaces; *dies* says before which call, and which time, it dies."""
        broker = self.bus_url if part == "relay" else self.urls[1]
        return await self.nursery.start(
            _PROGRAMS[part],
            urls=[self.urls[0], broker],
            mutant=self.mutant,
            dies=dies or {},
            config=self.configs[part],
        )

    async def ready(self, child: Child) -> None:
        """Wait until a process works, or has ended."""
        async with asyncio.timeout(READY_S):
            while not self.is_ready(child) and not child.ended.done():  # noqa: ASYNC110 - it says so in a file
                await asyncio.sleep(0.02)

    def is_ready(self, child: Child) -> bool:
        """Tell whether a process has begun to work."""
        if child.log not in self._ready and READY in child.said():
            self._ready.add(child.log)
        return child.log in self._ready

    async def stop(self) -> list[str]:
        """Tell everybody to stop, and return who did not end well."""
        wrong = []
        for part in PARTS:
            for child in self.alive(part):
                child.send(signal.SIGTERM)
                try:
                    code = await child.code()
                except TimeoutError:
                    wrong.append(f"a {part} that was told to stop goes on: {child.log}")
                else:
                    if code:
                        wrong.append(f"a {part} that was told to stop ended with {code}: {child.log}")
        return wrong

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Execute a statement of the test's own."""
        with psycopg.connect(self.urls[0]) as connection:
            return connection.execute(sql.encode(), values).fetchall()

    def queues(self) -> list[dict[str, Any]]:
        """Return what is known of each queue."""
        return self.servers.rabbit.list_queues(self.vhost)

    def owed(self) -> int:
        """Return how many rows of the outbox there are."""
        ((count,),) = self.rows("SELECT count(*) FROM tidewheel_outbox")
        return int(count)


@contextlib.asynccontextmanager
async def bus_fleet_on(
    servers: Servers, folder: Path, *, name: str, mutant: str | None = None
) -> AsyncIterator[BusFleet]:
    """Make a pipeline without processes, with a database and a virtual host called *name* on *servers*."""
    servers.rabbit.add_vhost(name)
    urls = [await new_database(servers.postgres, name), servers.rabbit.url_of(name)]
    async with nursery_in(folder, PRELOADED) as nursery:
        yield BusFleet(folder, servers, nursery, name, urls, mutant)
