"""Hosts whose clocks are wrong: timers fire once, and by the database's clock (51)."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import libfaketime  # type: ignore[import-untyped]  # it has no types
import pytest

from tests.chaos.corner import nap
from tests.chaos.fleet import Fleet
from tests.chaos.program import PRELOADED
from tests.faults.nursery import Nursery, nursery_in
from tidewheel.sdk.client import Client

#: What a host's clock is off by, as libfaketime writes it, and in seconds.
CLOCKS = {"two hours behind": ("-2h", -7_200.0), "a day ahead": ("+1d", 86_400.0)}
NAPS, NAP_S = 20, 0.5
#: A timer that nobody but the keeper can fire is found within this time, on a busy machine too.
LATE_S = 5.0

HostWith: TypeAlias = Callable[[str], AbstractAsyncContextManager[Nursery]]


@pytest.fixture
def host_with(folder: Path) -> HostWith:
    """Starts processes whose clock is wrong."""
    [library] = Path(libfaketime.__file__).parent.rglob("libfaketime.so.1")

    @asynccontextmanager
    async def started(clock: str) -> AsyncIterator[Nursery]:
        bent = {"LD_PRELOAD": str(library), "FAKETIME": clock, "DONT_FAKE_MONOTONIC": "1"}
        before = _left_by_the_library()
        try:
            async with nursery_in(folder, PRELOADED, name="bent", **bent) as nursery:
                yield nursery
        finally:
            for file in _left_by_the_library() - before:
                file.unlink(missing_ok=True)

    return started


def _left_by_the_library() -> set[Path]:
    """Return the shared memory of libfaketime: processes that are killed leave it behind."""
    return {*Path("/dev/shm").glob("faketime_shm_*"), *Path("/dev/shm").glob("sem.faketime_sem_*")}  # noqa: S108 - not ours to make


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("company", ["alone", "with another"])
async def test_timers_fire_once_and_when_their_time_has_come(
    fleet: Fleet, client: Client, host_with: HostWith, clock: str, company: str
) -> None:
    """Whatever the clock of the host says that sets, fires or keeps them."""
    offset, off_s = CLOCKS[clock]
    async with host_with(offset) as host:
        bent = await fleet.serve(nursery=host)
        await fleet.ready(bent)
        if company == "with another":
            await fleet.serve_ready()

        handles = [await client.start(nap, NAP_S, run_id=f"nap-{number}") for number in range(NAPS)]
        results = [await handle.result(timeout=30) for handle in handles]
        # One that nobody has in memory any more: only a keeper can fire it.
        slept = await client.start(nap, 2.0, run_id="slept")
        await fleet.kill(bent)
        other = await fleet.serve(nursery=host)
        await fleet.ready(other)
        assert await slept.result(timeout=30) == "awake"

    assert results == ["awake"] * NAPS
    assert abs(_said_at(bent.said()) - _now(fleet) - off_s) < 600, "the host's clock was right"
    late_s = [
        float(late_s)
        for (late_s,) in fleet.events(
            "SELECT f.at / 1000000.0 - extract(epoch FROM (s.data ->> 'fire_at')::timestamptz)"
            " FROM events AS f JOIN events AS s ON s.run_key = f.run_key AND s.type = 'TimerScheduled'"
            " WHERE f.type = 'TimerFired'"
        )
    ]
    assert len(late_s) == NAPS + 1
    assert min(late_s) >= 0
    assert max(late_s) < LATE_S
    assert fleet.breaches() == []


def _said_at(log: str) -> float:
    """Return when the host wrote the first line of its log, by its clock."""
    stamp = dt.datetime.strptime(log[:19], "%Y-%m-%d %H:%M:%S")  # noqa: DTZ007 - as the log has it
    return stamp.astimezone().timestamp()


def _now(fleet: Fleet) -> float:
    ((now,),) = fleet.rows("SELECT extract(epoch FROM clock_timestamp())")
    return float(now)
