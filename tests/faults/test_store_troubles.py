"""A store that cannot be used for a while, and one that is damaged, under a worker."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.faults.audit import journal_findings
from tests.faults.ledger import repeated_attempts
from tests.faults.place import Place, eventually
from tests.faults.shop import banking, bulky, one, patient, patient_far, signalled
from tests.faults.trouble import Trouble, full, locked, read_only
from tidewheel.journal import events as ev

#: What a worker says of a result that it cannot write.
WAITS = "waits for the store"


@pytest.mark.parametrize("trouble", [locked, read_only], ids=lambda trouble: trouble.__name__)
@pytest.mark.parametrize("workflow", [patient, patient_far])
async def test_a_result_is_kept_until_the_store_can_be_written(
    place: Place, workflow: Any, trouble: Trouble
) -> None:
    """The worker says that it waits, and goes on when the store is mended; nothing is executed again."""
    worker = await place.serve()
    handle = await place.client.start(workflow, "held", run_id="held")
    await eventually(lambda: place.ledger.of("held"), "the step's start")

    with trouble(place.folder):
        place.let("held")
        await eventually(lambda: WAITS in worker.said(), "the worker's word")

    assert await handle.result(timeout=30) == "after held"
    assert [line.attempt for line in place.ledger.lines()] == [1, 1]
    assert list(journal_findings(place.folder)) == []


async def test_a_result_is_kept_while_the_disk_is_full(place: Place) -> None:
    """A result that does not fit is written when there is room again; nothing is executed again."""
    worker = await place.serve()
    handle = await place.client.start(bulky, "held", run_id="held")
    await eventually(lambda: place.ledger.of("held"), "the step's start")

    with full(place.folder):
        place.let("held")
        await eventually(lambda: WAITS in worker.said(), "the worker's word")

    assert await handle.result(timeout=30) == len("after held") * 50_000
    assert [line.attempt for line in place.ledger.lines()] == [1, 1]
    assert list(journal_findings(place.folder)) == []


async def test_a_transactional_step_waits_for_a_locked_store(place: Place) -> None:
    """Its attempts may fail meanwhile; its row is there once."""
    worker = await place.serve()
    handle = await place.client.start(banking, "held", run_id="held")
    await eventually(lambda: place.ledger.of("held"), "the step's start")

    with locked(place.folder):
        place.let("held")
        await eventually(lambda: WAITS in worker.said(), "the worker's word")

    assert await handle.result(timeout=30) == "after held"
    assert place.rows("SELECT key FROM shop_rows") == [("held:1",)]
    assert repeated_attempts(place.ledger.lines()) == []
    assert list(journal_findings(place.folder)) == []


async def test_a_run_whose_journal_is_damaged_is_set_aside(place: Place) -> None:
    """It is parked with its reason; the others go on, and so does it once its journal was restored."""
    first = await place.serve()
    handle = await place.client.start(signalled, "damaged", 1, run_id="damaged")
    await eventually(lambda: _is_waiting(place), "the wait for the signal")
    first.send(signal.SIGTERM)
    await first.code()
    damage = "UPDATE tidewheel_journal SET data = ? WHERE first_seq = 0"
    ((right,),) = place.rows("SELECT data FROM tidewheel_journal WHERE first_seq = 0")
    place.rows(damage, right[:-1])

    second = await place.serve()
    await handle.signal("go", 1)
    await eventually(lambda: _parked(place) == [("unreadable",)], "the parking")
    assert await (await place.client.start(one, "other")).result(timeout=30) == "other"

    assert "event 0 of run damaged cannot be read" in second.said()
    place.rows(damage.replace("first_seq = 0", "first_seq = 0 AND length(data) = ?"), right, len(right) - 1)
    await place.serve()
    assert await handle.result(timeout=30) == 1
    assert list(journal_findings(place.folder)) == []


def _is_waiting(place: Place) -> bool:
    kinds = place.rows(
        "SELECT json_extract(event.value, '$.type') FROM tidewheel_journal AS journal,"
        " json_each(CAST(journal.data AS TEXT)) AS event"
    )
    return (ev.ExecutionAwaiting.__name__,) in kinds


def _parked(place: Place) -> list[Any]:
    return place.rows("SELECT parked FROM tidewheel_runs WHERE run_id = 'damaged'")
