"""A worker that stands still past its lease, is taken for dead, and comes back (7)."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.chaos.corner import one, patient, patient_far
from tests.chaos.fleet import Fleet
from tests.faults.place import eventually
from tidewheel.sdk.client import Client


@pytest.mark.parametrize("workflow", [patient, patient_far])
async def test_the_result_of_a_worker_that_was_given_up_is_refused(
    fleet: Fleet, client: Client, workflow: Any
) -> None:
    """Another one has taken over: there is one completion, of the second attempt, and one end."""
    first = await fleet.serve_ready(keeper=False, lease_s=0.5)
    handle = await client.start(workflow, "held", run_id="held")
    await eventually(lambda: _attempts(fleet), "the first attempt")
    first.send(signal.SIGSTOP)
    await fleet.serve_ready(lease_s=2.0)
    await eventually(lambda: len(_attempts(fleet)) == 2, "the second attempt")

    fleet.let("held")
    assert await handle.result(timeout=30) == "after held"
    first.send(signal.SIGCONT)
    await eventually(lambda: "announces itself again" in first.said(), "the first worker's return")

    completed = fleet.events(
        "SELECT data ->> 'promise_id', data ->> 'attempt' FROM events"
        " WHERE type = 'InvokeCompleted' ORDER BY run_seq"
    )
    assert completed == [("0", "2"), ("1", "1")]
    assert [line.attempt for line in _attempts(fleet)] == [1, 2]
    assert fleet.breaches() == []
    fresh = [await client.start(one, f"fresh {number}", run_id=f"fresh-{number}") for number in range(20)]
    assert [await run.result(timeout=30) for run in fresh] == [f"fresh {number}" for number in range(20)]


async def test_a_zombie_that_comes_back_before_the_second_attempt_ends_is_refused(
    fleet: Fleet, client: Client
) -> None:
    """The run is still open, and the step is somebody else's."""
    first = await fleet.serve_ready(keeper=False, lease_s=0.5)
    handle = await client.start(patient, "held", run_id="held")
    await eventually(lambda: _attempts(fleet), "the first attempt")
    first.send(signal.SIGSTOP)
    second = await fleet.serve_ready(lease_s=10.0)
    await eventually(lambda: len(_attempts(fleet)) == 2, "the second attempt")
    second.send(signal.SIGSTOP)

    fleet.let("held")
    first.send(signal.SIGCONT)
    await eventually(lambda: "announces itself again" in first.said(), "the first worker's return")
    step = fleet.rows(
        "SELECT path, attempt, owner IS NOT NULL FROM tidewheel_steps"
        " UNION ALL SELECT step ->> 'path', coalesce(step ->> 'attempt', '0')::bigint, owner IS NOT NULL"
        " FROM tidewheel_runs, json_array_elements(inline_steps::json) AS step"
    )
    second.send(signal.SIGCONT)

    assert step == [("0", 2, True)]
    assert await handle.result(timeout=30) == "after held"
    assert fleet.breaches() == []


def _attempts(fleet: Fleet) -> list[Any]:
    return [line for line in fleet.ledger.lines() if line.name == "held"]
