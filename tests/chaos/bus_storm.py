"""Runs go on while relays, projectors, workers and RabbitMQ are killed as planned; then all is looked at."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.bus_checker import BusReport, checked
from tests.chaos.bus_fleet import BusFleet, Part, bus_fleet_on
from tests.chaos.bus_outage import Outage, outage
from tests.chaos.bus_plan import BusPlan, BusTrouble
from tests.chaos.checker import published
from tests.chaos.fleet import Servers
from tests.chaos.history import Fault, History
from tests.chaos.senders import Senders
from tests.chaos.storm import client_of
from tests.faults.nursery import Child

#: How often progress is said, and processes counted.
SAY_EVERY_S, SUPERVISE_S = 10.0, 0.05
#: Two troubles are at least so long apart: a process lives for a few seconds, as even in a bad hour it would.
APART_S = 0.25
#: A process that is stopped is so for longer than others leave it what it has in hand.
PAUSE_S = 3.0
#: What is owed once all runs have ended has to be told, heard and projected within this time.
DRAIN_S = 90.0


@dataclass(slots=True, kw_only=True)
class BusOutcome:
    """What was done, and what it came to."""

    plan: BusPlan
    seconds: float
    started: int
    completed: int
    #: What senders saw that was wrong, and how often they met a store or a broker that was away.
    wrong: list[str]
    troubles: dict[str, int]
    faults: list[Fault]
    report: BusReport
    #: After the last run had ended, until the outbox was empty, all was heard and all was projected.
    drained_s: float
    #: Of events that were heard for the first time: how late, and when.
    lags_s: list[float] = field(default_factory=list)
    heard_at: list[float] = field(default_factory=list)
    alerts: dict[str, int] = field(default_factory=dict)
    outage: Outage | None = None


async def bus_weather(
    plan: BusPlan, servers: Servers, folder: Path, say: Callable[[str], None], *, mutant: str | None = None
) -> BusOutcome:
    """Carry out *plan* with a new pipeline on *servers*."""
    began = time.monotonic()
    async with bus_fleet_on(servers, folder, name=f"bus{plan.seed}", mutant=mutant) as fleet:
        history = History(folder / "history.jsonl", plan.seed)
        try:
            async with client_of(fleet.urls) as client:
                senders = Senders(client)
                storm = BusStorm(plan, fleet, senders, history, say)
                await storm.blow()
                drained_s = await drained(fleet, senders)
                lags_s, heard_at = _lags(fleet)
                without = await outage(fleet, senders, plan, say) if plan.outage_s else None
                if without is not None:
                    await drained(fleet, senders)
            senders.wrong += await fleet.stop()
        finally:
            history.close()
        say("everything is looked at")
        report = await checked(fleet, senders.started)
        return BusOutcome(
            plan=plan,
            seconds=time.monotonic() - began,
            started=len(senders.started),
            completed=senders.completed,
            wrong=senders.wrong,
            troubles=dict(senders.troubles),
            faults=history.faults,
            report=report,
            drained_s=drained_s,
            lags_s=lags_s,
            heard_at=heard_at,
            alerts=dict(fleet.arrivals.alerts),
            outage=without,
        )


async def drained(fleet: BusFleet, senders: Senders, within_s: float = DRAIN_S) -> float:
    """Wait until nothing is owed, all was heard and all is projected, but not longer than *within_s*.

    Returns how long after the end of the last run that was.
    """
    deadline = time.monotonic() + within_s
    while fleet.owed() and time.monotonic() < deadline:  # noqa: ASYNC110 - other processes do it
        await asyncio.sleep(0.1)
    wanted = sum(map(len, (await asyncio.to_thread(published, fleet.urls[0])).values()))
    while time.monotonic() < deadline:
        fleet.arrivals.look()
        ((projected,),) = fleet.rows(
            "SELECT count(*) FROM tidewheel_snapshots WHERE status IN ('COMPLETED', 'FAILED')"
        )
        if len(fleet.arrivals.first) >= wanted and projected >= len(senders.started):
            break
        await asyncio.sleep(0.1)
    return time.time() - senders.ended_at


def _lags(fleet: BusFleet) -> tuple[list[float], list[float]]:
    return [heard.lag_s for heard in fleet.arrivals.first], [heard.at for heard in fleet.arrivals.first]


class BusStorm:
    """A plan being carried out."""

    def __init__(
        self,
        plan: BusPlan,
        fleet: BusFleet,
        senders: Senders,
        history: History,
        say: Callable[[str], None],
    ) -> None:
        self.plan = plan
        self.fleet = fleet
        self.senders = senders
        self.history = history
        self._say = say
        self._chance = random.Random(plan.seed)
        self._schedule = plan.schedule()
        self._done = 0
        self._paused: set[asyncio.Task[None]] = set()
        self._deadline = time.monotonic() + plan.limit_s

    async def blow(self) -> None:
        """Carry it out, to its end or to its limit; what is missing then is for the verdict."""
        await self.fleet.begin()
        sending = self.senders.send(self.plan.runs, open_max=self.plan.open_max, allowed=self._allowed)
        whole = asyncio.gather(sending, self._trouble())
        tasks: list[asyncio.Future[Any]] = [whole]
        tasks += [asyncio.ensure_future(chore()) for chore in (self._supervise, self._tell)]
        try:
            # What cannot go on must not be waited for: the first of them that stumbles ends everything.
            left_s = self._deadline - time.monotonic()
            await asyncio.wait(tasks, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            await self.fleet.fill_up()
            await asyncio.gather(*self._paused)
            await self.fleet.fill_up()
        for end in ends:
            if isinstance(end, Exception):
                raise end

    def _allowed(self) -> int:
        """Return how many runs may be started by now: each trouble falls among runs that are under way."""
        if self._done == len(self._schedule):
            return self.plan.runs
        return self._schedule[self._done][0] + self.plan.open_max

    async def _supervise(self) -> None:
        """Replace processes that have ended, as an orchestrator does; for ever."""
        while True:
            await self.fleet.fill_up()
            await asyncio.sleep(SUPERVISE_S)

    async def _trouble(self) -> None:
        for runs_before, trouble in self._schedule:
            while self.senders.completed < runs_before:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.01)
            await asyncio.sleep(self._chance.uniform(0.0, APART_S))
            await self._make(trouble)
            self._done += 1
            await asyncio.sleep(APART_S)

    async def _make(self, trouble: BusTrouble) -> None:
        at = time.time()
        rabbit = self.fleet.servers.rabbit
        match trouble:
            case "broker kill":
                await asyncio.to_thread(rabbit.kill)
                await asyncio.to_thread(rabbit.start)
                self.history.add(Fault(kind="broker", how="kill", at=at, over_at=time.time()))
            case "broker app":
                await asyncio.to_thread(rabbit.stop_app)
                await asyncio.to_thread(rabbit.start_app)
                self.history.add(Fault(kind="broker", how="app", at=at, over_at=time.time()))
            case "relay kill":
                await self._kill("relay")
            case "projector kill":
                await self._kill("projector")
            case "worker kill":
                await self._kill("worker")
            case "relay pause":
                self._pause("relay")
            case "projector pause":
                self._pause("projector")

    async def _kill(self, part: Part) -> None:
        victim = self._chance.choice(await self._working(part))
        at = time.time()
        victim.send(signal.SIGKILL)
        await victim.code()
        self.history.add(Fault(kind=part, how="kill", at=at, over_at=at, pid=victim.pid))

    def _pause(self, part: Part) -> None:
        """Stop a process for a while; others trouble the pipeline meanwhile."""

        async def paused() -> None:
            at = time.time()
            victim = self._chance.choice(await self._working(part))
            victim.send(signal.SIGSTOP)
            await asyncio.sleep(PAUSE_S)
            victim.send(signal.SIGCONT)
            self.history.add(Fault(kind=part, how="pause", at=at, over_at=time.time(), pid=victim.pid))

        self._paused.add(asyncio.ensure_future(paused()))

    async def _working(self, part: Part) -> list[Child]:
        """Wait until one of them is at work, and return those that are: the others have nothing to lose."""
        while True:
            found = [child for child in self.fleet.alive(part) if self.fleet.is_ready(child)]
            if found:
                return found
            await asyncio.sleep(0.02)

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(SAY_EVERY_S)
            self.fleet.arrivals.look()
            counts = {kind: self.history.count(kind) for kind in ("relay", "projector", "worker", "broker")}
            self._say(
                f"{self.senders.completed} of {self.plan.runs} runs; "
                + ", ".join(f"{kind} {count}" for kind, count in counts.items())
                + f"; {len(self.fleet.arrivals.first)} events heard; {len(self.senders.wrong)} wrong"
            )
