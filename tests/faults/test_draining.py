"""What a worker does when it is told to stop: finish within its grace, or hand back."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.faults.audit import journal_findings
from tests.faults.ledger import repeated_attempts
from tests.faults.place import Place, eventually
from tests.faults.shop import endless, patient, patient_far
from tidewheel.journal import events as ev

WORKFLOWS = [patient, patient_far]


@pytest.mark.parametrize("workflow", WORKFLOWS)
async def test_a_step_in_hand_is_finished_within_the_grace(place: Place, workflow: Any) -> None:
    """The process ends well, the step is completed by it, and the run goes on elsewhere."""
    first = await place.serve(grace_s=30.0)
    handle = await place.client.start(workflow, "held", run_id="held")
    await eventually(lambda: place.ledger.of("held"), "the step's start")

    first.send(signal.SIGTERM)
    await eventually(lambda: "stopping" in first.said(), "the drain's start")
    place.let("held")
    code = await first.code()

    assert code == 0, first.said()
    await place.serve()
    assert await handle.result(timeout=30) == "after held"
    assert [(line.attempt, line.pid) for line in place.ledger.of("held")] == [(1, first.pid)]
    assert list(journal_findings(place.folder)) == []


@pytest.mark.parametrize("workflow", WORKFLOWS)
async def test_a_step_that_outlasts_the_grace_is_handed_back(place: Place, workflow: Any) -> None:
    """The process ends well all the same, and another worker makes the next attempt at once."""
    first = await place.serve(grace_s=0.2)
    handle = await place.client.start(workflow, "held", run_id="held")
    await eventually(lambda: place.ledger.of("held"), "the step's start")

    first.send(signal.SIGTERM)
    code = await first.code()

    assert code == 0, first.said()
    place.let("held")
    second = await place.serve()
    assert await handle.result(timeout=30) == "after held"
    lines = place.ledger.of("held")
    assert [(line.attempt, line.pid) for line in lines] == [(1, first.pid), (2, second.pid)]
    retried = [
        entry.event.error.type
        for entry in await place.journal("held")
        if isinstance(entry.event, ev.InvokeRetrying)
    ]
    assert retried == ["WorkerStopped"]
    assert repeated_attempts(place.ledger.lines()) == []
    assert list(journal_findings(place.folder)) == []


async def test_a_second_signal_ends_the_process_at_once(place: Place) -> None:
    """Whoever asks twice means it: the exit code tells, and nothing is lost."""
    first = await place.serve(grace_s=60.0)
    handle = await place.client.start(patient, "held", run_id="held")
    await eventually(lambda: place.ledger.of("held"), "the step's start")

    first.send(signal.SIGTERM)
    await eventually(lambda: "stopping" in first.said(), "the drain's start")
    first.send(signal.SIGTERM)
    code = await first.code()

    assert code == 130
    place.let("held")
    await place.serve()
    assert await handle.result(timeout=30) == "after held"
    assert list(journal_findings(place.folder)) == []


async def test_code_that_never_lets_go_is_named_and_does_not_keep_the_process(place: Place) -> None:
    """Nothing in the process moves any more, but it says where, and a second signal still ends it."""
    first = await place.serve(grace_s=60.0)
    await place.client.start(endless, run_id="endless")

    await eventually(lambda: "blocks the event loop" in first.said(), "the watchdog's word")
    first.send(signal.SIGTERM)
    first.send(signal.SIGINT)
    code = await first.code()

    assert code == 130
    assert "shop.py" in first.said()
    assert "in endless" in first.said()
