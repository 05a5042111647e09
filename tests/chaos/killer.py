"""Kills workers of a fleet, at points and at any moment, and replaces them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections import Counter

from tests.chaos.fleet import Fleet
from tests.chaos.history import Fault, History
from tests.chaos.points import Stage
from tests.faults.nursery import Child

#: How many workers there are, but for the moments in which one is replaced: more die than could with two.
WORKERS = 4
#: So many have to be at work before another one is chosen to die: one of them stays.
HEALTHY_MIN = 2
#: Two deaths are at least this long apart: a worker lives for a few seconds, as even in a bad hour it would.
APART_S = 0.5
#: A worker that does not come to its point within this time is killed where it is: as it begins, as it
#: works, and as it stops, which it does when the runs that it has in hand are over.
REACH_S: dict[Stage, float] = {"start": 3.0, "work": 3.0, "stop": 8.0}
#: How often the workers are counted.
SUPERVISE_S = 0.02
#: A point is armed for one of its first occurrences.
OCCURRENCE_MAX = 5
#: One kill in so many is at any moment, and not at a point.
ANY_MOMENT_EVERY = 8


_WAYS: tuple[Stage, ...] = ("start", "work", "stop")


class Killer:
    """See the module. ``hits`` says how often workers died at each point."""

    def __init__(self, fleet: Fleet, history: History, seed: int) -> None:
        self._fleet = fleet
        self._history = history
        self._chance = random.Random(seed)
        self._tries: Counter[str] = Counter()
        self._ways: dict[str, Stage] = {}
        self._kills = 0
        self._dying: list[Child] = []
        self.hits: Counter[str] = Counter()
        #: The points that every worker passes: what has to be hit. Others are hit where they can be.
        self.wanted: dict[str, list[Stage]] = {}

    def missing(self, per_point: int) -> list[str]:
        """Return the wanted points that were not hit so often."""
        return [point for point in self.wanted if self.hits[point] < per_point]

    async def kill_one(self, per_point: int) -> None:
        """Kill a worker, at a point that was not hit *per_point* times if there is one, and replace it."""
        await asyncio.sleep(APART_S)
        self._fleet.notes.look()
        self._kills += 1
        missing = self.missing(per_point)
        if not missing or self._kills % ANY_MOMENT_EVERY == 0:
            await self._kill_at_any_moment()
        else:
            fewest = min(self._tries[point] for point in missing)
            await self._kill_at(self._chance.choice([p for p in missing if self._tries[p] == fewest]))

    async def supervise(self) -> None:
        """Replace workers that have ended, whatever of, as an orchestrator does; for ever."""
        while True:
            await self.fill_up()
            await asyncio.sleep(SUPERVISE_S)

    async def fill_up(self) -> None:
        """See to it that there are enough workers; they may not be ready yet."""
        for worker in [*self._fleet.workers]:
            if worker.ended.done():
                self._fleet.workers.remove(worker)
        while len(self._fleet.workers) < WORKERS:
            await self._fleet.serve()

    async def ready(self) -> list[Child]:
        """Wait until enough workers are at work that are not to die, and return them."""
        while True:
            alive = [worker for worker in self._fleet.workers if not worker.ended.done()]
            found = [worker for worker in alive if self._fleet.is_ready(worker)]
            healthy = [worker for worker in found if worker not in self._dying]
            if len(healthy) >= HEALTHY_MIN:
                return healthy
            await asyncio.sleep(0.02)

    async def _kill_at_any_moment(self) -> None:
        victim = self._chance.choice(await self.ready())
        self._dying.append(victim)
        await asyncio.sleep(self._chance.uniform(0.0, 0.2))
        await self._end(victim, "any moment")

    async def _kill_at(self, point: str) -> None:
        workers = await self.ready()
        # The way that did before, or one after the other: what a worker does as it begins may be noted late.
        ways = sorted(_WAYS, key=lambda way: way not in self.wanted[point])
        way = self._ways.get(point) or ways[self._tries[point] % len(ways)]
        self._tries[point] += 1
        before = self.hits[point]
        occurrence = self._chance.randint(1, OCCURRENCE_MAX if way == "work" else 1)
        if way == "start":
            victim = await self._fleet.serve((point, occurrence))
            self._dying.append(victim)
        else:
            victim = self._chance.choice(workers)
            self._dying.append(victim)
            await self._fleet.arm(victim, point, occurrence)
            if way == "stop":
                victim.send(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REACH_S[way]):
                await asyncio.shield(victim.ended)
        await self._end(victim, f"any moment (armed: {point})")
        if self.hits[point] > before:
            self._ways[point] = way
        else:
            self._ways.pop(point, None)

    async def _end(self, victim: Child, how: str) -> None:
        """See that *victim* is dead, and write down what it died of."""
        at = time.time()
        victim.send(signal.SIGKILL)
        code = await victim.code()
        self._dying.remove(victim)
        self._fleet.notes.look()
        point = self._fleet.notes.deaths.get(victim.pid)
        if point is not None:
            how, at = point
            self.hits[how] += 1
        if code == -signal.SIGKILL:
            self._history.add(Fault(kind="worker", how=how, at=at, over_at=at, pid=victim.pid))
