"""A pipeline that was broken on purpose is found out: what a dead process had in hand has to come again."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.chaos.bus_checker import checked
from tests.chaos.bus_fleet import CONFIGS, BusFleet, Part, bus_fleet_on
from tests.chaos.bus_storm import drained
from tests.chaos.fleet import Servers
from tests.chaos.senders import Senders
from tests.chaos.storm import client_of

RUNS = 30
#: What comes again comes within this time; the second one is for what never does.
COMES_S, NEVER_S = 60.0, 4.0

_numbers = itertools.count(1)


@asynccontextmanager
async def pipeline(
    servers: Servers, folder: Path, mutant: str | None
) -> AsyncIterator[tuple[BusFleet, Senders]]:
    """A pipeline with one process of each kind, and whoever starts runs."""
    name = f"mutant{next(_numbers)}"
    async with bus_fleet_on(servers, folder, name=name, mutant=mutant) as fleet:
        fleet.wanted = {"worker": 1, "relay": 1, "projector": 1}
        # Nobody reads from the journal what an event that comes too early is waiting for.
        fleet.configs = {**CONFIGS, "projector": {**CONFIGS["projector"], "patience_s": 1_000.0}}
        await fleet.begin()
        async with client_of(fleet.urls) as client:
            yield fleet, Senders(client)


async def end(fleet: BusFleet, part: Part) -> None:
    """Let there be none of these, until the test wants one."""
    fleet.wanted = {**fleet.wanted, part: 0}
    for child in fleet.alive(part):
        child.send(signal.SIGTERM)
        assert await child.code() == 0, child.said()
    await fleet.fill_up()


async def told(fleet: BusFleet) -> None:
    """Wait until the bus has taken all that it is owed."""
    async with asyncio.timeout(COMES_S):
        while fleet.owed():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.05)


async def broken_rules(fleet: BusFleet, senders: Senders, mutant: str | None) -> set[str]:
    """Wait until everything came, or could have, and return the rules that are broken."""
    await told(fleet)
    await drained(fleet, senders, COMES_S if mutant is None else NEVER_S)
    report = await checked(fleet, senders.started)
    return {finding.rule for finding in report.findings}


@pytest.mark.parametrize("mutant", [None, "forget_first"])
async def test_a_relay_that_forgets_before_the_bus_has_it_is_found_out(
    servers: Servers, folder: Path, mutant: str | None
) -> None:
    """One dies right before it publishes: the next one tells it, unless it was forgotten already (43)."""
    async with pipeline(servers, folder, mutant) as (fleet, senders):
        await end(fleet, "relay")
        dying = await fleet.start("relay", dies={"offer": 1})
        await senders.send(RUNS, open_max=RUNS, allowed=lambda: RUNS)
        assert await dying.code() == -signal.SIGKILL
        fleet.wanted = {**fleet.wanted, "relay": 1}
        await fleet.fill_up()

        broken = await broken_rules(fleet, senders, mutant)

        assert ("every_event_arrives" in broken) == (mutant is not None), broken
        assert (broken == set()) == (mutant is None), broken


@pytest.mark.parametrize("mutant", [None, "acknowledge_first"])
async def test_a_projector_that_acknowledges_before_it_writes_is_found_out(
    servers: Servers, folder: Path, mutant: str | None
) -> None:
    """One dies right before it writes: the next one gets the same events, unless they were settled (46)."""
    async with pipeline(servers, folder, mutant) as (fleet, senders):
        await end(fleet, "projector")
        await senders.send(RUNS, open_max=RUNS, allowed=lambda: RUNS)
        await told(fleet)
        dying = await fleet.start("projector", dies={"save": 1})
        assert await dying.code() == -signal.SIGKILL
        fleet.wanted = {**fleet.wanted, "projector": 1}
        await fleet.fill_up()

        broken = await broken_rules(fleet, senders, mutant)

        lost = {"snapshots_are_level", "snapshots_equal_a_rebuild"}
        assert broken == (set() if mutant is None else lost)
