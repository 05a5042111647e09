"""A process that stands still past its lease, is taken for dead, and comes back."""

from __future__ import annotations

import asyncio
import os
import signal

from tests.faults.audit import journal_findings
from tests.faults.nursery import Nursery
from tests.faults.place import Place, eventually
from tests.faults.shop import hogging, one, patient
from tidewheel.journal import events as ev
from tidewheel.workers.lifeline import is_gone


async def test_a_worker_that_comes_back_after_its_lease_changes_nothing(place: Place) -> None:
    """Another worker has taken over: the first one's result is refused, and there is one completion."""
    first = await place.serve(keeper=False, lease_s=0.5)
    handle = await place.client.start(patient, "held", run_id="held")
    await eventually(lambda: place.ledger.of("held"), "the first attempt")
    first.send(signal.SIGSTOP)

    second = await place.serve(lease_s=2.0)
    await eventually(lambda: len(place.ledger.of("held")) == 2, "the second attempt")
    place.let("held")
    assert await handle.result(timeout=30) == "after held"
    first.send(signal.SIGCONT)
    await eventually(lambda: "announces itself again" in first.said(), "the first worker's return")

    events = [entry.event for entry in await place.journal("held")]
    completed = [event for event in events if isinstance(event, ev.InvokeCompleted)]
    assert [(event.promise_id, event.attempt) for event in completed] == [("0", 2), ("1", 1)]
    assert len([event for event in events if isinstance(event, ev.TERMINAL)]) == 1
    assert [line.pid for line in place.ledger.of("held")] == [first.pid, second.pid]
    second.send(signal.SIGTERM)
    assert await second.code() == 0
    assert await (await place.client.start(one, "fresh")).result(timeout=30) == "fresh"
    assert list(journal_findings(place.folder)) == []


async def test_a_zombie_finds_the_run_still_open_and_is_refused_all_the_same(place: Place) -> None:
    """It comes back while the second attempt is being made: its own result is late."""
    first = await place.serve(keeper=False, lease_s=0.5)
    handle = await place.client.start(patient, "held", run_id="held")
    await eventually(lambda: place.ledger.of("held"), "the first attempt")
    first.send(signal.SIGSTOP)
    second = await place.serve(lease_s=5.0)
    await eventually(lambda: len(place.ledger.of("held")) == 2, "the second attempt")
    second.send(signal.SIGSTOP)

    place.let("held")
    first.send(signal.SIGCONT)
    await eventually(lambda: "announces itself again" in first.said(), "the first worker's return")
    await asyncio.sleep(0.3)
    open_steps = place.open_steps()
    second.send(signal.SIGCONT)

    assert open_steps == [("0", 2, True)]
    assert await handle.result(timeout=30) == "after held"
    completed = [
        (entry.event.promise_id, entry.event.attempt)
        for entry in await place.journal("held")
        if isinstance(entry.event, ev.InvokeCompleted)
    ]
    assert completed == [("0", 2), ("1", 1)]
    assert list(journal_findings(place.folder)) == []


async def test_a_body_that_blocks_its_process_past_the_lease_is_completed_once(place: Place) -> None:
    """Nothing renews the lease meanwhile, another worker takes over, and the first one's result is late."""
    first = await place.serve(keeper=False, lease_s=0.5)
    handle = await place.client.start(hogging, "held", run_id="held")
    await eventually(lambda: place.ledger.of("held"), "the first attempt")

    second = await place.serve(lease_s=0.5)
    await eventually(lambda: len(place.ledger.of("held")) == 2, "the second attempt")
    place.let("held")

    assert await handle.result(timeout=30) == "after held"
    attempts = [(line.attempt, line.pid) for line in place.ledger.of("held")]
    assert attempts == [(1, first.pid), (2, second.pid)]
    completed = [
        entry.event.promise_id
        for entry in await place.journal("held")
        if isinstance(entry.event, ev.InvokeCompleted)
    ]
    assert completed == ["0", "1"]
    assert list(journal_findings(place.folder)) == []


async def test_a_killed_process_that_nobody_asked_for_is_gone(place: Place, nursery: Nursery) -> None:
    """A parent that does not wait for its children, as in many containers, does not keep leases alive."""
    worker = await place.serve(keeper=False)
    (record,) = await place.store.workers()
    assert not is_gone(record)

    # Only its parent could see to it that it leaves the table of processes, and that stands still.
    parent = nursery.server_pid
    os.kill(parent, signal.SIGSTOP)
    try:
        os.kill(worker.pid, signal.SIGKILL)
        await eventually(lambda: is_gone(record), "its end")
        is_in_table = os.getpgid(worker.pid) == parent
    finally:
        os.kill(parent, signal.SIGCONT)

    assert is_in_table
