"""The processes of the simulated world: workers, keepers and clients, with the real code in them.

An actor goes on when its process ends: another process takes its place, with a new name.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from tests.simulation.broker import SimulatedBroker
from tests.simulation.errands import Errand, insist, run_errand
from tests.simulation.loop import Process
from tests.simulation.store import SimulatedStore
from tests.simulation.workflows import app
from tidewheel.journal.errors import TidewheelError
from tidewheel.sdk.client import Client
from tidewheel.sdk.limits import Limits
from tidewheel.workers.config import KeeperConfig, WorkerConfig
from tidewheel.workers.keeper import Keeper
from tidewheel.workers.worker import Worker
from tidewheel.workers.write_budget import StateStoreConfig

if TYPE_CHECKING:
    from tests.simulation.world import World

#: The queues of each worker: together they serve all, each of them twice.
QUEUES = (("default",), ("default", "far"), ("far", "default"))


class Actor:
    """A part in the world, played by one process after the other."""

    process: Process
    store: SimulatedStore
    broker: SimulatedBroker

    def __init__(self, world: World, name: str, place: int) -> None:
        self.world = world
        self.name = name
        self.place = place
        self.lives = 0

    def start(self) -> None:
        """Begin a process."""
        self.lives += 1
        self.process = self.world.loop.new_process(f"{self.name}.{self.lives}")
        wire = self.world.enter(self, self.process)
        self.store, self.broker = self.world.connect(wire)
        self.world.note(f"{self.process.name} begins")
        self.process.spawn(self._guarded(self.process))

    async def _guarded(self, process: Process) -> None:
        """Let an error end the process, as it would a real one; another one is started."""
        try:
            await self.live()
        except TidewheelError as problem:
            self.world.note(f"{process.name} could not begin: {problem}")
            self.world.end(self, "gives up")

    def live(self) -> Coroutine[Any, Any, None]:
        """Do what the process is for."""
        raise AssertionError("each kind of actor says what it does")

    def chance(self) -> random.Random:
        """Return chance of this life's own."""
        return random.Random(f"{self.world.seed} {self.process.name}")


class WorkerActor(Actor):
    """A worker with little room, so that its bounds matter."""

    worker: Worker

    async def live(self) -> None:
        """Start a worker; its tasks do the rest."""
        chance = self.chance()
        config = WorkerConfig(
            queues=QUEUES[self.place % len(QUEUES)],
            prefetch=chance.choice((2, 8, 64)),
            slots=chance.choice((2, 4, 64)),
            cache=chance.choice((1, 5, 1000)),
            hold_s=chance.choice((0.5, 5.0, 60.0)),
            started_after_s=chance.choice((0.05, 0.5, 1.0)),
            opens=chance.choice((True, True, False)),
        )
        state_store = StateStoreConfig(
            write_latency_budget_ms=chance.choice((1, 3_000, 3_000)),
            fail_open_for_event_class=chance.choice(((), ("StepStarted",), ("StepStarted",))),
        )
        self.worker = Worker(
            app,
            self.store,
            self.broker,
            config=config,
            state_store=state_store,
            secret=f"{self.world.seed} {self.process.name}".encode(),
            threads=False,
            worker_id=self.process.name,
        )
        await self.worker.start()

    def stop(self, grace_s: float) -> None:
        """Ask the worker to leave."""
        self.process.spawn(self._leave(self.process, grace_s))

    async def _leave(self, process: Process, grace_s: float) -> None:
        await self.worker.stop(grace_s)
        if process.is_alive:
            self.world.end(self, "has stopped")


class KeeperActor(Actor):
    """A keeper."""

    async def live(self) -> None:
        """Start a keeper; its tasks do the rest."""
        batch = self.chance().choice((3, 500))
        await Keeper(self.store, self.broker, config=KeeperConfig(batch=batch)).start()


class ClientActor(Actor):
    """A client that runs errands, and takes up those it had when it died."""

    def __init__(self, world: World, name: str, place: int) -> None:
        super().__init__(world, name, place)
        self._errands: list[Errand] = []

    async def live(self) -> None:
        """Run errands for ever."""
        chance = self.chance()
        client = await insist(
            lambda: Client.connect(
                store=self.store, broker=self.broker, limits=Limits(), token_bytes=chance.randbytes
            )
        )
        if chance.random() < 0.5:
            await client.listen()
        self._errands = [errand for errand in self._errands if not errand.is_done]
        async with asyncio.TaskGroup() as group:
            for errand in self._errands:
                group.create_task(run_errand(client, errand, chance))
            while True:
                await asyncio.sleep(0.3 * chance.random())
                errand_or_none = self._next(chance)
                if errand_or_none is not None:
                    group.create_task(run_errand(client, errand_or_none, chance))

    def _next(self, chance: random.Random) -> Errand | None:
        """Take something new; or, now and then, what another client does already."""
        if chance.random() < 0.1 and self.world.is_storm:
            others = [errand for errand in self.world.errands if not errand.is_done]
            taken = chance.choice(others) if others else None
        else:
            taken = self.world.next_errand()
        if taken is not None and taken not in self._errands:
            self._errands.append(taken)
            return taken
        return None
