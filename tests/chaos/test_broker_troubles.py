"""A broker that takes nothing, says nothing or hangs up: it costs time, never a result (12 to 18)."""

from __future__ import annotations

import time

import pytest

from tests.chaos.broker_troubles import Trouble, black, memory_alarm, refused
from tests.chaos.corner import one, patient, patient_far
from tests.chaos.fleet import Fleet
from tests.chaos.storm import client_of
from tests.faults.place import eventually
from tidewheel.sdk.client import Client

#: Nobody who starts a run waits longer than this for a broker.
BOUND_S = 8.0


@pytest.mark.parametrize("trouble", [memory_alarm, black, refused], ids=lambda trouble: trouble.__name__)
async def test_runs_go_on_without_the_broker_and_new_ones_when_it_is_back(
    fleet: Fleet, trouble: Trouble
) -> None:
    """A step in hand is finished, a start is stored within a bound, and what nobody was told of is found."""
    # A connection that is dead is found out by its heartbeat: two of them have to be missed.
    urls = [fleet.urls[0], f"{fleet.urls[1]}?heartbeat=1"]
    worker = await fleet.serve_ready(urls=urls)
    async with client_of(urls) as client:
        held = await client.start(patient, "held", run_id="held")
        far = await client.start(patient_far, "far", run_id="far")
        await eventually(lambda: len(fleet.ledger.lines()) == 2, "both steps' start")

        async with trouble(fleet):
            began = time.monotonic()
            late = await client.start(one, "late", run_id="late")
            took_s = time.monotonic() - began
            fleet.let("held")
            await eventually(lambda: _has(fleet, "after held"), "the next step")
        fleet.let("far")

        assert took_s < BOUND_S
        assert await held.result(timeout=30) == "after held"
        assert await far.result(timeout=30) == "after far"
        assert await late.result(timeout=30) == "late"
    assert sorted(line.attempt for line in fleet.ledger.lines()) == [1] * 5, worker.said()
    assert fleet.breaches() == []


async def test_consumers_are_back_after_the_broker_closed_every_connection(
    fleet: Fleet, client: Client
) -> None:
    """Within seconds, again and again (14)."""
    await fleet.serve_ready()
    took_s = []

    for number in range(5):
        fleet.servers.rabbit.close_all_connections()
        began = time.monotonic()
        handle = await client.start(one, f"run {number}", run_id=f"run-{number}")
        assert await handle.result(timeout=30) == f"run {number}"
        took_s.append(time.monotonic() - began)

    assert max(took_s) < 5.0, took_s
    assert fleet.breaches() == []


def _has(fleet: Fleet, name: str) -> bool:
    return any(line.name == name for line in fleet.ledger.lines())
