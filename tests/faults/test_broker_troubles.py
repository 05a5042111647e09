"""A broker that says nonsense, is locked, or is gone: it only costs time."""

from __future__ import annotations

from tests.faults.audit import journal_findings
from tests.faults.place import Place, broker_file, eventually
from tests.faults.shop import one, patient
from tests.faults.trouble import lock_of
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.topology import poison_queue, work_queue

WORK = work_queue("default", "default")


async def test_a_message_that_nobody_can_read_is_put_aside(place: Place) -> None:
    """It is kept for people to look at, and the worker goes on."""
    await place.serve()
    nonsense = Message(body=b"\xff not a work item", message_id="nonsense")

    await place.broker.publish([Publication(message=nonsense, routing_key=WORK)])
    result = await (await place.client.start(one, "other")).result(timeout=30)
    while not await place.broker.depth(poison_queue("default")):
        await eventually(lambda: True)

    assert result == "other"
    async with place.broker.consume(poison_queue("default"), prefetch=1) as deliveries:
        kept = await anext(deliveries)
    assert kept.message.body == nonsense.body
    assert "not a work item" in str(kept.message.headers)


async def test_runs_go_on_when_the_lock_of_the_brokers_file_is_released(place: Place) -> None:
    """Steps in hand end without a broker; what nobody was told of is found by the keeper."""
    worker = await place.serve()
    held = await place.client.start(patient, "held", run_id="held")
    await eventually(lambda: place.ledger.of("held"), "the step's start")

    with lock_of(broker_file(place.folder)):
        untold = await place.start_untold(one, "untold", run_id="untold")
        place.let("held")
        await eventually(lambda: place.ledger.of("after held"), "the next step")
        await eventually(lambda: "cannot be used" in worker.said(), "the worker's word")

    assert await held.result(timeout=30) == "after held"
    assert await untold.result(timeout=30) == "untold"
    assert [line.attempt for line in place.ledger.lines()] == [1, 1, 1]
    assert list(journal_findings(place.folder)) == []


async def test_runs_go_on_when_the_brokers_file_was_deleted(place: Place) -> None:
    """A new file is made, with all its queues; what the old one knew is found by the keeper."""
    await place.serve()
    held = await place.client.start(patient, "held", run_id="held")
    await eventually(lambda: place.ledger.of("held"), "the step's start")

    for suffix in ("", "-wal", "-shm"):
        broker_file(place.folder).with_name(f"store.broker.db{suffix}").unlink(missing_ok=True)
    untold = await place.start_untold(one, "untold", run_id="untold")
    place.let("held")

    assert await held.result(timeout=30) == "after held"
    assert await untold.result(timeout=30) == "untold"
    assert [line.attempt for line in place.ledger.lines()] == [1, 1, 1]
    assert list(journal_findings(place.folder)) == []
