"""An engine that was broken on purpose is found out by the checker, end to end."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.chaos.corner import busy, one, patient_far
from tests.chaos.fleet import Fleet
from tests.faults.place import eventually
from tidewheel.broker.opening import open_broker
from tidewheel.broker.work_items import RunHint, to_workers
from tidewheel.sdk.client import Client
from tidewheel.sdk.handle import Handle

#: A result that is refused leaves no trace: only waiting shows it.
REFUSED_S = 1.0
#: Runs that two workers are told of at the same time, how often, and by how many hints each time.
RUNS, ROUNDS, HINTS = 10, 30, 60


@pytest.mark.parametrize("mutant", [None, "ignore_the_fence"])
async def test_a_missing_fence_is_found_out(fleet: Fleet, client: Client, mutant: str | None) -> None:
    """Two workers that move the same runs at the same time spoil their journals, unless there is a fence."""
    for _ in range(2):
        await fleet.serve_ready(mutant=mutant)
    handles = [await client.start(busy, run_id=f"run-{number}") for number in range(RUNS)]

    found = await _told_over_and_over(fleet, handles)

    assert (found == []) == (mutant is None)


async def _told_over_and_over(fleet: Fleet, handles: list[Handle[int]]) -> list[str]:
    """Send signals and very many hints; return what is wrong with the journals as soon as something is."""
    hints = [to_workers(RunHint(namespace="default", run_id=one.run_id), "default") for one in handles]
    broker = open_broker(fleet.direct[1], store_url=fleet.direct[0])
    try:
        for round_ in range(ROUNDS):
            await asyncio.gather(*(handle.signal("call", round_) for handle in handles))
            await broker.publish(hints * HINTS)
            found = [one for one in fleet.breaches() if not one.startswith("every_run_has_ended")]
            if found:
                return found
    finally:
        await broker.close()
    return []


@pytest.mark.parametrize("mutant", [None, "believe_zombies"])
async def test_a_believed_zombie_is_found_out(fleet: Fleet, client: Client, mutant: str | None) -> None:
    """The result of an attempt that was given up is in the journal, unless it is refused."""
    first = await fleet.serve_ready(keeper=False, lease_s=0.5, mutant=mutant)
    handle = await client.start(patient_far, "held", run_id="held")
    await eventually(lambda: len(fleet.ledger.lines()) == 1, "the first attempt")
    first.send(signal.SIGSTOP)
    second = await fleet.serve_ready(lease_s=10.0, mutant=mutant)
    await eventually(lambda: len(fleet.ledger.lines()) == 2, "the second attempt")
    second.send(signal.SIGSTOP)

    fleet.let("held")
    first.send(signal.SIGCONT)
    await eventually(lambda: "announces itself again" in first.said(), "the first worker's return")
    await asyncio.sleep(REFUSED_S)
    second.send(signal.SIGCONT)
    await handle.result(timeout=30)

    assert (fleet.breaches() == []) == (mutant is None)


@pytest.mark.parametrize("mutant", [None, "acknowledge_first"])
async def test_a_message_that_is_settled_too_early_is_found_out(
    fleet: Fleet, client: Client, mutant: str | None
) -> None:
    """Where no keeper repeats it, the run is stuck; settled after the append, it is delivered again (6)."""
    await fleet.serve_ready(keeper=False, mutant=mutant)
    dying = await fleet.serve(("store.submit[moves]:before", 1), keeper=False, mutant=mutant)
    await fleet.ready(dying)

    handles: list[Handle[str]] = []
    while not dying.ended.done():
        name = f"run-{len(handles)}"
        handles.append(await client.start(one, name, run_id=name))
        await asyncio.sleep(0.05)
    results = await asyncio.gather(*(handle.result(timeout=5) for handle in handles), return_exceptions=True)

    stuck = [result for result in results if isinstance(result, TimeoutError)]
    assert (stuck == []) == (mutant is None)
    assert (fleet.breaches() == []) == (mutant is None)
