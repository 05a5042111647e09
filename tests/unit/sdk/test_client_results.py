"""Waiting for results: told by a worker, found by a look, or not in time."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest

from tests.unit.sdk.twins import Broker, Store, add, complete, move, ship
from tidewheel import Client, InvalidRequest, NotFound, RunCancelled, RunFailed
from tidewheel.broker.message import Message, Publication
from tidewheel.journal import events as ev
from tidewheel.sdk.ending import CROWD
from tidewheel.sdk.hinting import EVENT_MAX
from tidewheel.sdk.payload import PayloadError
from tidewheel.store.append import Append, ChildStart, Park
from tidewheel.store.errors import StoreUnavailable
from tidewheel.store.records import RunRef


def reads(store: Store) -> int:
    """Return how often the store was read."""
    return store.calls["find"] + store.calls["journal"] + store.calls["load"]


def elapsed_s() -> float:
    """Return how much virtual time has passed."""
    return asyncio.get_running_loop().time()


async def settled(waiting: asyncio.Task[Any]) -> None:
    """Let everything run that can, without letting time pass."""
    for _ in range(50):
        await asyncio.sleep(0)
    assert not waiting.done()


async def test_a_result_comes_in_the_declared_type(client: Client, store: Store, broker: Broker) -> None:
    """By function a result is decoded; by name it is plain JSON."""
    typed = await client.start(ship, dt.date(2025, 1, 31), run_id="s")
    await complete(store, broker, "s", "2025-02-01")

    assert await typed.result() == dt.date(2025, 2, 1)
    assert await client.handle("s").result() == "2025-02-01"


async def test_whoever_waits_is_told_and_does_not_look(client: Client, store: Store, broker: Broker) -> None:
    """One write to be told, no look while waiting, and the reply has the result; no time passes."""
    handle = await client.start(add, 1, run_id="a")
    waiting = asyncio.create_task(handle.result())
    await settled(waiting)
    assert (store.calls["append"], reads(store)) == (2, 0)

    await complete(store, broker, "a", 2)

    assert await waiting == 2
    assert reads(store) == 0
    assert elapsed_s() == 0


async def test_a_result_that_is_too_large_for_a_reply_is_read(
    client: Client, store: Store, broker: Broker
) -> None:
    """Once: the reply says where it is."""
    handle = await client.start("wordy", run_id="a")
    waiting = asyncio.create_task(handle.result())
    await settled(waiting)

    await complete(store, broker, "a", "x" * EVENT_MAX)

    assert len(await waiting) == EVENT_MAX
    assert reads(store) == 1
    assert elapsed_s() == 0


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":"ended","runs":[{"namespace":"default","run_id":"a","last_seq":1,"event":{"type":"Later"}}]}',
        b'{"kind":"ended","runs":[{"namespace":"default","run_id":"a","last_seq":1,"event":7}]}',
        b'{"kind":"ended","runs":7}',
        b"nonsense",
    ],
)
async def test_a_reply_that_cannot_be_read_does_no_harm(
    client: Client, store: Store, broker: Broker, body: bytes
) -> None:
    """As of a newer release: whoever waits looks now and then anyway."""
    await client.listen()
    handle = await client.start(add, 1, run_id="a")
    waiting = asyncio.create_task(handle.result())
    await settled(waiting)
    queue = client._connection.replies.queue
    await broker.publish([Publication(message=Message(body=body, message_id="m"), routing_key=queue)])
    await move(store, "a", ev.ExecutionCompleted(result=ev.Result(ok=2)))

    assert await waiting == 2


async def test_a_client_that_listens_says_so_in_the_start(
    client: Client, store: Store, broker: Broker
) -> None:
    """A start followed by a result costs no write of its own; the first result makes a client listen."""
    assert await client.listen()
    handle = await client.start(add, 1, run_id="a")
    waiting = asyncio.create_task(handle.result())
    await settled(waiting)

    assert (store.calls["append"], reads(store)) == (1, 0)
    await complete(store, broker, "a", 2)
    assert await waiting == 2
    assert reads(store) == 0
    assert elapsed_s() == 0


async def test_a_run_that_ended_before_anybody_waited_is_found_at_once(
    client: Client, store: Store, broker: Broker
) -> None:
    """The reply to a listening client came when nobody waited for it: the first look finds the end."""
    await client.listen()
    handle = await client.start(add, 1, run_id="a")
    await complete(store, broker, "a", 2)

    assert await handle.result() == 2
    assert await client.handle("a").result() == 2
    assert await handle.result(timeout=0) == 2
    assert elapsed_s() == 0


async def test_many_share_one_consumer(client: Client, store: Store, broker: Broker) -> None:
    """A hundred handles, two of them of one run, are told through one queue."""
    handles = [await client.start(add, 1, run_id=f"a-{number}") for number in range(100)]
    waiting = [asyncio.create_task(handle.result()) for handle in (*handles, client.handle("a-7"))]
    await settled(waiting[0])
    for number in range(100):
        await complete(store, broker, f"a-{number}", number)

    assert await asyncio.gather(*waiting) == [*range(100), 7]
    assert elapsed_s() == 0
    assert len([task for task in asyncio.all_tasks() if task.get_name() == "tidewheel-replies"]) == 1


async def test_a_lost_reply_is_found_by_looking(client: Client, store: Store) -> None:
    """Looks come 0.5, 1, 2, 4, 8, 10, 10 seconds apart."""
    handle = await client.start(add, 1, run_id="a")
    waiting = asyncio.create_task(handle.result())
    await asyncio.sleep(30)
    looks = store.calls["find"]
    await move(store, "a", ev.ExecutionCompleted(result=ev.Result(ok=2)))

    assert await waiting == 2
    assert looks == 6
    assert elapsed_s() == pytest.approx(35.5)


async def test_many_who_wait_leave_replies_time_to_come(client: Client, store: Store) -> None:
    """Most of them do not look for two seconds; one whose reply was lost finds its result then."""
    await client.listen()
    handles = [await client.start(add, 1, run_id=f"r-{number}") for number in range(CROWD + 50)]
    waiting = [asyncio.create_task(handle.result()) for handle in handles]
    await asyncio.sleep(0.6)
    looks = store.calls["find"]
    await move(store, handles[-1].run_id, ev.ExecutionCompleted(result=ev.Result(ok=2)))

    assert await waiting[-1] == 2
    assert looks == CROWD
    assert elapsed_s() == pytest.approx(2)
    for each in waiting:
        each.cancel()


async def test_without_a_broker_a_result_is_found_by_looking(
    client: Client, store: Store, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can be told, so nobody asks to be; when the broker is back, whoever waits asks at once."""
    broker.is_down = True
    handle = await client.start(add, 1, run_id="a")
    caplog.clear()
    waiting = asyncio.create_task(handle.result())
    await asyncio.sleep(12)
    asked_while_down = store.calls["append"]
    broker.is_down = False
    await asyncio.sleep(4)
    await complete(store, broker, "a", 2)

    assert await waiting == 2
    assert asked_while_down == 1
    assert elapsed_s() == pytest.approx(16)
    assert caplog.text.count("cannot be told") == 1


async def test_a_reply_queue_that_was_deleted_is_made_again(
    client: Client, store: Store, broker: Broker
) -> None:
    """What was said meanwhile is lost, so everybody looks; later replies arrive again."""
    handles = [await client.start(add, 1, run_id=name) for name in ("a", "b")]
    waiting = [asyncio.create_task(handle.result()) for handle in handles]
    await settled(waiting[0])
    await broker.delete_queue(client._connection.replies.queue)
    await move(store, "a", ev.ExecutionCompleted(result=ev.Result(ok=1)))

    assert await waiting[0] == 1
    assert elapsed_s() == pytest.approx(0.5)
    await complete(store, broker, "b", 2)
    assert await waiting[1] == 2
    assert elapsed_s() == pytest.approx(0.5)


async def test_nonsense_in_the_reply_queue_is_dropped(client: Client, store: Store, broker: Broker) -> None:
    """A message that cannot be understood disturbs nobody."""
    handle = await client.start(add, 1, run_id="a")
    waiting = asyncio.create_task(handle.result())
    await settled(waiting)
    nonsense = Message(body=b"\xff", message_id="1")
    await broker.publish([Publication(message=nonsense, routing_key=client._connection.replies.queue)])
    await complete(store, broker, "a", 2)

    assert await waiting == 2
    assert elapsed_s() == 0


@pytest.mark.parametrize("timeout", [3, dt.timedelta(seconds=3)])
async def test_a_result_may_take_too_long(client: Client, timeout: Any) -> None:
    """A timeout says how the run stands; the run goes on."""
    handle = await client.start(add, 1, run_id="a")

    with pytest.raises(TimeoutError, match="run a did not end within 3 seconds: it is RUNNING"):
        await handle.result(timeout=timeout)

    assert elapsed_s() == pytest.approx(3)
    with pytest.raises(TimeoutError):
        await handle.result(timeout=-1)
    with pytest.raises(InvalidRequest, match="not a duration"):
        await handle.result(timeout="soon")  # type: ignore[arg-type]  # what a user may write
    assert elapsed_s() == pytest.approx(3)


async def test_a_run_that_failed_or_was_cancelled_raises(client: Client, store: Store) -> None:
    """The error is the run's own; asking again gives the same."""
    failed = await client.start(add, 1, run_id="f")
    cancelled = await client.start(add, 1, run_id="c")
    await cancelled.cancel("not needed")
    await move(store, "f", ev.ExecutionFailed(error=ev.Error(type="ValueError", message="no")))
    await move(store, "c", ev.ExecutionCancelled(reason="not needed"))

    with pytest.raises(RunFailed, match="f: ValueError: no"):
        await failed.result()
    for _ in range(2):
        with pytest.raises(RunCancelled, match="c was cancelled: not needed"):
            await cancelled.result()


async def test_a_result_of_another_type_than_declared_is_refused(
    client: Client, store: Store, broker: Broker
) -> None:
    """As with a mismatch, where the run is of another workflow."""
    handle = await client.start(ship, dt.date(2025, 1, 31), run_id="s")
    await complete(store, broker, "s", "no date")

    with pytest.raises(PayloadError, match="result of s"):
        await handle.result()


async def test_a_parked_run_has_not_ended(
    client: Client, store: Store, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """A fixed deploy may mend it: waiting goes on, says so once, and a timeout says why."""
    handle = await client.start(add, 1, run_id="a")
    parking = Park(kind="violation", reason="Task(1): journal has 'a', code asked for 'b'")
    await store.append([Append(run=RunRef("default", "a"), mark=parking)])

    with pytest.raises(TimeoutError, match=r"it is RUNNING, parked: Task\(1\)"):
        await handle.result(timeout=60)

    assert caplog.text.count("is parked (violation: Task(1)") == 1
    await complete(store, broker, "a", 2)
    assert await handle.result() == 2


async def test_a_store_that_is_away_for_a_moment_does_not_end_the_waiting(
    client: Client, store: Store, broker: Broker
) -> None:
    """A few looks may fail; if none succeeds, whoever waits is told."""
    handle = await client.start(add, 1, run_id="a")
    waiting = asyncio.create_task(handle.result())
    await settled(waiting)
    store.is_down = True
    await asyncio.sleep(5)
    store.is_down = False
    await complete(store, broker, "a", 2)

    assert await waiting == 2
    waiting = asyncio.create_task((await client.start(add, 1)).result())
    await settled(waiting)
    store.is_down = True
    with pytest.raises(StoreUnavailable):
        await waiting


async def test_waiting_for_a_run_that_is_not_there_ends_at_once(client: Client) -> None:
    """There is nothing to wait for."""
    with pytest.raises(NotFound, match="there is no run 'ghost' in namespace 'default'"):
        await client.handle("ghost").result()
    with pytest.raises(NotFound):
        await client.handle("ghost").result(timeout=0)


async def test_closing_the_client_ends_the_waiting(store: Store, broker: Broker) -> None:
    """Whoever waits is told, and the reply queue goes away."""
    client = await Client.connect(store, broker)
    waiting = asyncio.create_task((await client.start(add, 1)).result())
    await settled(waiting)
    queue = client._connection.replies.queue
    await client.close()

    with pytest.raises(InvalidRequest, match="was closed"):
        await waiting
    assert queue not in broker._queues.by_name
    assert elapsed_s() == 0


async def test_cancelling_who_waits_leaves_nothing_behind(client: Client) -> None:
    """A waiter that went away is forgotten."""
    waiting = asyncio.create_task((await client.start(add, 1)).result())
    await settled(waiting)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert client._connection.replies._waiting == {}


async def test_a_child_run_has_a_handle(client: Client, store: Store, broker: Broker) -> None:
    """A child's id is its promise."""
    await client.start(add, 1, run_id="order-42")
    asked = ev.InvokeScheduled(
        promise_id="0", kind="workflow", function_name="add", input=[1], dispatch="queued", n=0
    )
    children = {"0": ChildStart(workflow="add", version="", digest="", queue="default")}
    waits = ev.ExecutionAwaiting(waiting_on=["0"], kind="single")
    await move(store, "order-42", asked, waits, children=children)
    child = client.handle("order-42:0")
    waiting = asyncio.create_task(child.result())
    await settled(waiting)
    await complete(store, broker, "order-42:0", 7)

    assert await waiting == 7
    assert await child.status() == "COMPLETED"


@pytest.mark.parametrize("wrong", ["", "a:", "a:x", "a:01", "a b", "a:1:2", "x" * 201, 7, None, "a|b"])
async def test_a_malformed_id_is_refused_before_anything_is_read(client: Client, wrong: Any) -> None:
    """Ids are checked at the door."""
    with pytest.raises(InvalidRequest):
        client.handle(wrong)
