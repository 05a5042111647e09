"""Signals and cancels by message: whoever takes one, the run is told once, or somebody is told why not."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.workers.house import House
from tests.unit.workers.postbox import Postbox
from tests.unit.workers.test_commands import MINUTE, app, has_begun, waits
from tidewheel import App, RunCancelled
from tidewheel.workers.config import WorkerConfig


async def test_a_signal_by_message_reaches_the_run(house: House, postbox: Postbox) -> None:
    """One after the other, in whatever order they were taken."""
    await house.worker(app)
    await postbox.start("waits", run_id="r")
    await house.until(lambda: has_begun(house, "r"))

    await postbox.signal("r", "word", payload="first")
    await postbox.signal("r", "word", payload="last")

    assert await (await house.client()).handle("r").result(timeout=MINUTE) == ["first", "last"]
    assert await postbox.reasons() == []


@pytest.mark.parametrize(
    "given",
    [{"request_id": "q"}, {"message_id": "m"}, {"message_id": "m" * 255}],
    ids=["request", "message", "a long message id"],
)
async def test_the_same_signal_is_delivered_once(
    house: House, postbox: Postbox, given: dict[str, str]
) -> None:
    """By its request's id, or else its message's; without any each is another."""
    await house.worker(app)
    await postbox.start("waits", run_id="r")
    await house.until(lambda: has_begun(house, "r"))

    await postbox.signal("r", "word", payload="once", **given)
    await postbox.signal("r", "word", payload="once", **given)
    await postbox.signal("r", "word", payload="twice")
    await postbox.signal("r", "word", payload="twice")
    await house.until(lambda: house.kinds("r")["SignalDelivered"] >= 3)
    await postbox.signal("r", "word", payload="last")

    heard = await (await house.client()).handle("r").result(timeout=MINUTE)
    assert sorted(heard) == ["last", "once", "twice", "twice"]


async def test_a_client_and_a_message_share_the_ids_of_requests(house: House, postbox: Postbox) -> None:
    """A signal that was sent both ways is one."""
    await house.worker(app)
    handle = await (await house.client()).start(waits, run_id="r")

    await handle.signal("word", "once", request_id="q")
    await postbox.signal("r", "word", payload="once", request_id="q")
    await asyncio.sleep(5)
    await handle.signal("word", "last")

    assert await handle.result(timeout=MINUTE) == ["once", "last"]


async def test_a_signal_that_cannot_be_delivered_is_a_dead_letter(house: House, postbox: Postbox) -> None:
    """Nobody else would tell whoever sent it."""
    await house.worker(app)
    await postbox.start("hurries", 0, run_id="over")
    await house.until(lambda: bool(house.store.rows.runs) and house.run("over").ended)

    await postbox.signal("over", "word", payload=1)
    await postbox.signal("nobody", "word", payload=1)
    await postbox.signal("over", "word", payload=1, namespace="shop")
    await asyncio.sleep(5)

    assert await postbox.reasons() == [
        "run 'over' has ended, and takes no signals",
        "there is no run 'nobody' in namespace 'default'",
        "there is no run 'over' in namespace 'shop'",
    ]


async def test_a_signal_that_is_repeated_after_the_end_was_delivered(house: House, postbox: Postbox) -> None:
    """As by a worker that died before it acknowledged it: it is no dead letter."""
    await house.worker(app)
    await postbox.start("waits", run_id="r")
    await house.until(lambda: has_begun(house, "r"))
    await postbox.signal("r", "word", payload="last", message_id="m")
    await house.until(lambda: house.run("r").ended)

    await postbox.signal("r", "word", payload="last", message_id="m")
    await asyncio.sleep(5)

    assert await postbox.reasons() == []


async def test_a_cancel_by_message_stops_the_run(house: House, postbox: Postbox) -> None:
    """With its reason; asking again, or after the end, changes nothing and is nothing to tell of."""
    await house.worker(app)
    client = await house.client()
    await postbox.start("waits", run_id="r")
    await house.until(lambda: has_begun(house, "r"))

    await postbox.cancel("r", reason="enough")
    await postbox.cancel("r", reason="again")
    with pytest.raises(RunCancelled, match="enough"):
        await client.handle("r").result(timeout=MINUTE)
    await postbox.cancel("r", reason="too late")
    await asyncio.sleep(5)

    assert house.kinds("r")["CancelRequested"] == 1
    assert await postbox.reasons() == []


async def test_a_cancel_for_nobody_is_a_dead_letter(house: House, postbox: Postbox) -> None:
    """It may be meant for a run that is yet to be started, or be misspelt."""
    await house.worker(app)

    await postbox.cancel("nobody")
    await asyncio.sleep(5)

    assert await postbox.reasons() == ["there is no run 'nobody' in namespace 'default'"]


async def test_whoever_takes_a_command_wakes_the_worker_that_has_the_run(
    house: House, postbox: Postbox
) -> None:
    """Signals and cancels for runs of another queue, or of another namespace, are followed by anybody."""
    await house.worker(App("bare"), WorkerConfig(queues=("other",)), namespace="elsewhere")
    await house.worker(app)
    client = await house.client()
    handles = [await client.start(waits) for _ in range(10)]

    for place, handle in enumerate(handles):
        if place % 2:
            await postbox.signal(handle.run_id, "word", payload="last")
        else:
            await postbox.cancel(handle.run_id)
    await house.until(lambda: all(house.run(handle.run_id).ended for handle in handles), seconds=5)

    assert list((await postbox.runs()).values()).count("COMPLETED") == 5
