"""Whose a run is while its steps are executed, for how long, and what happens to it when its owner dies."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
from functools import partial
from typing import Any

import pytest

from tests.faults.audit import journal_findings
from tests.faults.ledger import repeated_attempts
from tests.faults.place import Place, broker_file, eventually
from tests.faults.shop import busy_and_signalled, filming, laborious, laborious_far, several

SIGNALS = 12


def _messages(place: Place) -> int:
    """Count the messages of the shared queue: those that wait, and those in somebody's hands."""
    with contextlib.closing(sqlite3.connect(broker_file(place.folder), isolation_level=None)) as connection:
        statement = "SELECT count(*) FROM message WHERE queue = 'tidewheel.work.default'"
        ((count,),) = connection.execute(statement).fetchall()
    return int(count)


def _lease_ends(place: Place) -> Any:
    ((alive_until,),) = place.rows("SELECT alive_until FROM tidewheel_workers")
    return alive_until


async def test_hints_go_to_the_worker_that_has_the_run(place: Place) -> None:
    """Whoever gets one while the owner lives passes it on: the run's steps stay in one process."""
    # One delivery is all it takes from the shared queue: every hint is the other's.
    first = await place.serve(keeper=False, prefetch=1)
    handle = await place.client.start(busy_and_signalled, "held", SIGNALS, run_id="held")
    await eventually(lambda: place.ledger.of("held"), "the first step")
    await place.serve()

    for number in range(SIGNALS):
        await handle.signal("go", number)
        await eventually(partial(place.ledger.of, f"held {number}"), "a signal's step")
    place.let("held")

    assert await handle.result(timeout=30) == SIGNALS
    assert {line.pid for line in place.ledger.lines()} == {first.pid}
    assert list(journal_findings(place.folder)) == []


async def test_an_owner_that_died_does_not_strand_its_run(place: Place) -> None:
    """Hints that were passed on to it are given to others, and so are its steps."""
    first = await place.serve(keeper=False, lease_s=2.0)
    handle = await place.client.start(busy_and_signalled, "held", 3, run_id="held")
    await eventually(lambda: place.ledger.of("held"), "the first step")
    second = await place.serve()
    first.send(signal.SIGSTOP)

    for number in range(3):
        await handle.signal("go", number)
    first.send(signal.SIGKILL)
    place.let("held")

    assert await handle.result(timeout=30) == 3
    assert {line.pid for line in place.ledger.of("held 2")} == {second.pid}
    assert [line.attempt for line in place.ledger.of("held")] == [1, 2]
    assert repeated_attempts(place.ledger.lines()) == []
    assert list(journal_findings(place.folder)) == []


@pytest.mark.parametrize("workflow", [laborious, laborious_far])
async def test_a_long_step_holds_a_lease_in_place_of_its_delivery(place: Place, workflow: Any) -> None:
    """Its delivery is acknowledged early; killed, it is taken over with what its last heartbeat said."""
    first = await place.serve(keeper=False, hold_s=0.3, lease_s=1.0)
    handle = await place.client.start(workflow, "long", run_id="long")
    await eventually(lambda: place.ledger.of("long"), "the first attempt")
    lease = _lease_ends(place)

    await eventually(lambda: _messages(place) == 0, "the acknowledgement")
    await eventually(lambda: _lease_ends(place) > lease, "a renewal")
    await eventually(lambda: int((place.folder / "long.done").read_text()) > 20, "some progress")
    attempts_before = len(place.ledger.of("long"))
    first.send(signal.SIGKILL)
    await first.code()
    done = int((place.folder / "long.done").read_text())
    second = await place.serve()
    await eventually(lambda: len(place.ledger.of("long")) == 2, "the second attempt")
    place.let("long")
    began_at = await handle.result(timeout=30)

    assert attempts_before == 1
    # The last heartbeats may not have been written when the process was killed.
    assert done - 10 <= began_at <= done
    assert [(line.attempt, line.pid) for line in place.ledger.of("long")] == [(1, first.pid), (2, second.pid)]
    assert list(journal_findings(place.folder)) == []


async def test_two_processes_share_the_work(place: Place) -> None:
    """A second worker needs nothing but to be started; each step is executed once, by one of them."""
    first = await place.serve(slots=4)
    second = await place.serve(slots=4, keeper=False)

    handles = [await place.client.start(several, f"run{number}", 5) for number in range(40)]
    results = [await handle.result(timeout=60) for handle in handles]

    lines = place.ledger.lines()
    assert results == [5] * 40
    assert len(lines) == 200
    assert {line.pid for line in lines} == {first.pid, second.pid}
    assert repeated_attempts(lines) == []
    assert {line.attempt for line in lines} == {1}
    assert list(journal_findings(place.folder)) == []


async def test_a_queue_has_processes_of_its_own(place: Place) -> None:
    """Its steps are executed there alone, as many at a time as there are slots; others are not held up."""
    general = await place.serve(slots=2)
    graphics = await place.serve(queues=["gpu"], slots=2, keeper=False)
    handle = await place.client.start(filming, "film", 6, run_id="film")
    await eventually(lambda: len(place.ledger.lines()) == 2, "two steps")

    others = [await place.client.start(several, f"other{number}", 3) for number in range(5)]
    results = [await other.result(timeout=30) for other in others]
    at_work = [line for line in place.ledger.lines() if line.name.startswith("film")]
    for number in range(6):
        place.let(f"film {number}")

    assert await handle.result(timeout=30) == 6
    assert results == [3] * 5
    assert len(at_work) == 2
    assert {line.pid for line in place.ledger.lines() if line.name.startswith("film")} == {graphics.pid}
    assert {line.pid for line in place.ledger.lines() if line.name.startswith("other")} == {general.pid}
    assert list(journal_findings(place.folder)) == []
