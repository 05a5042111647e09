"""Runs go on while workers, servers and networks are troubled as planned; then everything is looked at."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from tests.chaos import troubles
from tests.chaos.checker import checked
from tests.chaos.customers import Customers
from tests.chaos.findings import Report
from tests.chaos.fleet import Fleet, Servers, fleet_on
from tests.chaos.history import Event, Fault, History, Standstill, standstills
from tests.chaos.journaled import EVENTS
from tests.chaos.killer import Killer
from tests.chaos.plan import Plan
from tidewheel.broker.opening import open_broker
from tidewheel.sdk.client import Client
from tidewheel.store.opening import open_store

#: Runs that show, before anything happens, which points there are.
CALM_RUNS = 16
#: How often progress is said.
SAY_EVERY_S = 10.0
#: Between two troubles of servers, so that each can be told from the next.
APART_S = 1.0

_OF_RUNS = """
SELECT r.run_id, array_agg(e.at ORDER BY e.run_seq), array_agg(e.type ORDER BY e.run_seq)
  FROM events AS e
  JOIN tidewheel_runs AS r USING (run_key)
 GROUP BY r.run_id
"""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What was done, and what it came to."""

    plan: Plan
    seconds: float
    started: int
    completed: int
    #: What customers saw that was wrong, and how often they met a store that was away.
    wrong: list[str]
    troubles: dict[str, int]
    faults: list[Fault]
    hits: dict[str, int]
    wanted: list[str]
    report: Report
    standstills: list[Standstill] = field(default_factory=list)


async def weather(plan: Plan, servers: Servers, folder: Path, say: Callable[[str], None]) -> Outcome:
    """Carry out *plan* with a new fleet on *servers*."""
    began = time.monotonic()
    async with fleet_on(servers, folder, name=f"storm{plan.seed}", seed=plan.seed) as fleet:
        history = History(folder / "history.jsonl", plan.seed)
        try:
            storm = Storm(plan, fleet, history, say)
            await storm.blow()
        finally:
            history.close()
    report = await asyncio.to_thread(checked, fleet.direct[0], storm.customers.started, fleet.ledger.lines())
    return Outcome(
        plan=plan,
        seconds=time.monotonic() - began,
        started=len(storm.customers.started),
        completed=storm.customers.completed,
        wrong=storm.customers.wrong,
        troubles=dict(storm.customers.troubles),
        faults=history.faults,
        hits=dict(storm.killer.hits),
        wanted=list(storm.killer.wanted),
        report=report,
        standstills=standstills(history.faults, _journals(fleet.direct[0])),
    )


def _journals(url: str) -> list[tuple[str, list[Event]]]:
    with psycopg.connect(url) as connection:
        return [
            (run_id, [Event(at / 1_000_000, type_) for at, type_ in zip(times, types, strict=True)])
            for run_id, times, types in connection.execute((EVENTS + _OF_RUNS).encode())
        ]


class Storm:
    """A plan being carried out."""

    customers: Customers

    def __init__(self, plan: Plan, fleet: Fleet, history: History, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.fleet = fleet
        self.history = history
        self.killer = Killer(fleet, history, plan.seed)
        self._say = say
        self._troubles_left = plan.schedule()
        self._kills = 0
        self._killers_left = plan.dying_max
        self._deadline = time.monotonic() + plan.limit_s

    async def blow(self) -> None:
        """Carry it out, to its end or to its limit."""
        await self.killer.fill_up()
        await self.killer.ready()
        async with client_of(self.fleet.urls) as client:
            self.customers = Customers(client, open_max=self.plan.open_max, seed=self.plan.seed)
            await self._calm()
            killers = [self._kill] * self.plan.dying_max
            chores = [self.killer.supervise, *killers, self._trouble, self._tell]
            shopping = asyncio.ensure_future(self.customers.shop(self._is_enough))
            tasks = [shopping, *(asyncio.ensure_future(chore()) for chore in chores)]
            try:
                # What cannot go on must not be waited for: the first of them that stumbles ends everything.
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                ends = await asyncio.gather(*tasks, return_exceptions=True)
            for end in ends:
                if isinstance(end, Exception):
                    raise end

    async def _calm(self) -> None:
        """Let a few runs pass and a worker stop: what it passes in its life is where others will die."""
        await self.customers.shop(lambda: len(self.customers.started) >= CALM_RUNS)
        leaving = self.fleet.workers[0]
        leaving.send(signal.SIGTERM)
        code = await leaving.code()
        assert code == 0, f"a worker that was told to stop ended with {code}:\n{leaving.said()}"
        await self.killer.fill_up()
        self.fleet.notes.look()
        self.killer.wanted = dict(self.fleet.notes.points)

    def _is_enough(self) -> bool:
        if time.monotonic() > self._deadline:
            return True
        is_over = not self._troubles_left and not self._killers_left
        return is_over and len(self.customers.started) >= self.plan.runs

    def _share(self) -> float:
        return self.customers.completed / self.plan.runs

    async def _until(self, share: float) -> bool:
        """Wait until so many of the runs are done; False if the time is up before."""
        while self._share() < share:
            if time.monotonic() > self._deadline:
                return False
            await asyncio.sleep(0.02)
        return time.monotonic() < self._deadline

    async def _kill(self) -> None:
        while self._kills < self.plan.kills or self.killer.missing(self.plan.per_point):
            number = self._kills
            self._kills += 1
            if not await self._until(self.plan.share_before_kill(number)):
                break
            await self.killer.kill_one(self.plan.per_point)
        self._killers_left -= 1
        await asyncio.Event().wait()

    async def _trouble(self) -> None:
        while self._troubles_left:
            share, trouble = self._troubles_left[0]
            if not await self._until(share):
                break
            self.history.add(await troubles.make(trouble, self.fleet))
            self._troubles_left.pop(0)
            await asyncio.sleep(APART_S)
        await asyncio.Event().wait()

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(SAY_EVERY_S)
            counts = {kind: self.history.count(kind) for kind in ("worker", "postgres", "broker", "network")}
            missing = len(self.killer.missing(self.plan.per_point))
            self._say(
                f"{self.customers.completed} of {self.plan.runs} runs; "
                + ", ".join(f"{kind} {count}" for kind, count in counts.items())
                + f"; {len(self.killer.wanted) - missing} of {len(self.killer.wanted)} points;"
                f" {len(self.customers.wrong)} wrong"
            )


@contextlib.asynccontextmanager
async def client_of(urls: list[str], *, listening: bool = True) -> AsyncIterator[Client]:
    """A client, which is told when its runs end if it is *listening*; of these store and broker."""
    async with AsyncExitStack() as opened:
        store = await open_store(urls[0])
        opened.push_async_callback(store.close)
        broker = open_broker(urls[1], store_url=urls[0])
        opened.push_async_callback(broker.close)
        client = await opened.enter_async_context(await Client.connect(store=store, broker=broker))
        if listening:
            await client.listen()
        yield client
