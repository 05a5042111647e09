"""Relays cannot reach the bus for a while, and runs go on: what is owed meanwhile is told afterwards.

Hints and commands travel over the same RabbitMQ, so it is the relays' own network that is cut; what becomes
of runs without any broker is another fault. Nobody does anything about it: the network comes back, and that
is all.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.chaos.bus_fleet import BusFleet
from tests.chaos.bus_plan import BusPlan
from tests.chaos.history import quantile
from tests.chaos.proxy import Proxy, proxy_before
from tests.chaos.senders import Senders

#: How long runs go on before the bus is away, and after it is back.
BEFORE_S, AFTER_S = 3.0, 5.0
#: What was on its way when the network was cut has arrived by then.
CUT_S = 1.0
#: How long a run may take without a bus, in 99 of 100 cases: so long, or so many times as long as with one.
P99_S_MAX, P99_RATIO_MAX = 2.0, 3.0
#: How long what is owed may take: a relay looks for the bus every ten seconds at least.
DRAIN_S_MAX = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """What there was to see: runs a second, how long 99 of 100 took, and what was owed."""

    seconds: float
    per_s: float
    per_s_before: float
    p99_s: float
    p99_s_before: float
    #: Events that were heard although the bus was away.
    heard: int
    #: Rows of the outbox when the bus came back, and how long it took until they were told.
    owed: int
    drained_s: float

    def __str__(self) -> str:
        return (
            f"without a bus for {self.seconds:.0f} s: {self.per_s:.0f} runs/s, {self.p99_s:.2f} s each (p99);"
            f" before: {self.per_s_before:.0f} runs/s, {self.p99_s_before:.2f} s. {self.owed} rows were owed,"
            f" and told {self.drained_s:.1f} s after it was back, while runs went on"
        )

    def complaints(self) -> Iterator[str]:
        """Yield what is wrong with it."""
        if self.heard:
            yield f"{self.heard} events were heard although the bus was away"
        if self.per_s < 0.8 * self.per_s_before:
            yield f"{self.per_s:.0f} runs/s without a bus, {self.per_s_before:.0f} with one"
        p99_s_max = max(P99_S_MAX, P99_RATIO_MAX * self.p99_s_before)
        if self.p99_s > p99_s_max:
            yield f"runs took {self.p99_s:.2f} s without a bus (p99); they may take {p99_s_max:.2f} s"
        if self.owed < self.per_s * self.seconds:
            yield f"{self.owed} rows are fewer than the runs that ended without a bus"
        if self.drained_s > DRAIN_S_MAX:
            yield f"what was owed was told after {self.drained_s:.1f} s; it may take {DRAIN_S_MAX:g} s"


async def outage(fleet: BusFleet, senders: Senders, plan: BusPlan, say: Callable[[str], None]) -> Outage:
    """Let runs go on while the bus is away for as long as *plan* says, and see how it drains."""
    per_s = plan.outage_runs_per_s
    async with _own_network(fleet) as network:
        per_s_before, p99_s_before = await _sent(senders, per_s, BEFORE_S)
        say("the bus is away")
        await network.refuse()
        await network.reset()
        await asyncio.sleep(CUT_S)
        fleet.arrivals.look()
        heard = -len(fleet.arrivals.first)
        began = time.monotonic()
        per_s_without, p99_s = await _sent(senders, per_s, plan.outage_s)
        fleet.arrivals.look()
        heard += len(fleet.arrivals.first)
        owed = fleet.owed()
        say(f"the bus is back; {owed} rows are owed")
        seconds = time.monotonic() - began
        await network.accept()
        _, drained_s = await asyncio.gather(_sent(senders, per_s, AFTER_S), _told(fleet, time.time()))
        say(f"what was owed was told {drained_s:.1f} s later")
        return Outage(
            seconds=seconds,
            per_s=per_s_without,
            per_s_before=per_s_before,
            p99_s=p99_s,
            p99_s_before=p99_s_before,
            heard=heard,
            owed=owed,
            drained_s=drained_s,
        )


async def _sent(senders: Senders, per_s: int, seconds: float) -> tuple[float, float]:
    """Start runs and wait for them; return how many ended a second, and how long 99 of 100 took."""
    before, began = len(senders.took_s), time.monotonic()
    await senders.send_steadily(per_s, seconds)
    took_s = senders.took_s[before:]
    return len(took_s) / (time.monotonic() - began), quantile(took_s, 0.99)


async def _told(fleet: BusFleet, since: float) -> float:
    """Wait until nothing is owed that was written before *since*, or far too long; return how long."""
    sql = "SELECT count(*) FROM tidewheel_outbox WHERE created_at < %s"
    while fleet.rows(sql, round(since * 1_000_000)) != [(0,)]:
        if time.time() - since > 2 * DRAIN_S_MAX:
            break
        await asyncio.sleep(0.1)
    return time.time() - since


@asynccontextmanager
async def _own_network(fleet: BusFleet) -> AsyncIterator[Proxy]:
    """Let the relays reach the broker by a network of their own while the block lasts."""
    direct = fleet.bus_url
    async with proxy_before(fleet.servers.rabbit.port) as network:
        fleet.bus_url = network.url(direct)
        await _replace_relays(fleet)
        yield network
        fleet.bus_url = direct
        await _replace_relays(fleet)


async def _replace_relays(fleet: BusFleet) -> None:
    for relay in fleet.alive("relay"):
        relay.send(signal.SIGTERM)
        code = await relay.code()
        assert code == 0, f"a relay that was told to stop ended with {code}:\n{relay.said()}"
    await fleet.fill_up()
    for relay in fleet.alive("relay"):
        await fleet.ready(relay)
