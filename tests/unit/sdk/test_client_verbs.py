"""What a handle says of its run, and what it can tell the run."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.unit.sdk.twins import Broker, Store, add, complete, move
from tidewheel import AlreadyResolved, Client, Handle, InvalidRequest, NotFound, SignalRejected
from tidewheel.broker.work_items import RunHint, read_item
from tidewheel.journal import events as ev
from tidewheel.store.errors import StoreUnavailable


@pytest.fixture
async def handle(client: Client, broker: Broker) -> Handle[int]:
    """A run that has started."""
    started = await client.start(add, 1, run_id="a")
    broker.published.clear()
    return started


async def signals(handle: Handle[Any]) -> list[tuple[str, Any]]:
    """Return the signals in the run's journal."""
    events = [entry.event for entry in await handle.journal()]
    return [(event.signal_name, event.payload) for event in events if isinstance(event, ev.SignalDelivered)]


async def wait_for(store: Store, *promises: str) -> None:
    """Let the run create promises and wait for all of them."""
    created = [ev.PromiseCreated(promise_id=str(n), name=name) for n, name in enumerate(promises)]
    paths = [event.promise_id for event in created]
    await move(store, "a", *created, ev.ExecutionAwaiting(waiting_on=paths, kind="any"))


async def test_a_handle_tells_how_its_run_stands(handle: Handle[int], store: Store, broker: Broker) -> None:
    """Status, snapshot, journal and public events all come from the journal."""
    await complete(store, broker, "a", 2)

    assert (handle.run_id, repr(handle)) == ("a", "<Handle a>")
    assert await handle.status() == "COMPLETED"
    described = await handle.describe()
    assert (described.run_id, described.workflow, described.status) == ("a", "add", "COMPLETED")
    assert [entry.run_seq for entry in await handle.journal()] == [0, 1]
    assert [event.event_type for event in await handle.events()] == ["RunStarted", "RunCompleted"]


async def test_state_is_what_the_run_remembers(handle: Handle[int], store: Store) -> None:
    """Across continue-as-new the new segment begins with what the last one had."""
    await move(
        store,
        "a",
        ev.StateSet(key="kept", value=[1]),
        ev.StateSet(key="gone", value=2),
        ev.StateCleared(key="gone"),
    )
    before = await handle.state()
    await move(
        store,
        "a",
        ev.ExecutionContinued(input=[2], next_position=0),
        ev.ExecutionStarted(workflow="add", input=[2], run_id="a", state={"kept": [1]}),
        ev.StateSet(key="new", value=None),
    )

    assert before == {"kept": [1]}
    assert await handle.state() == {"kept": [1], "new": None}


async def test_a_signal_is_delivered_and_the_run_woken(
    client: Client, store: Store, handle: Handle[int], broker: Broker
) -> None:
    """A signal is a fact in the journal, then a hint."""
    await wait_for(store, "p")
    await handle.signal("approval", {"by": "me"})

    assert await signals(handle) == [("approval", {"by": "me"})]
    (published,) = broker.published
    assert read_item(published.message) == RunHint(namespace="default", run_id="a")


async def test_two_signals_are_two_and_a_repeated_request_is_one(handle: Handle[int]) -> None:
    """Each call is a signal of its own, unless the caller names its request."""
    await handle.signal("n", 1)
    await handle.signal("n", 1)
    for _ in range(3):
        await handle.signal("n", 2, request_id="<42@mail>")

    assert await signals(handle) == [("n", 1), ("n", 1), ("n", 2)]


async def test_a_signal_whose_reply_was_lost_is_delivered_once(handle: Handle[int], store: Store) -> None:
    """It is repeated under the same key."""
    store.lost_replies = 2
    await handle.signal("n", 1)

    assert await signals(handle) == [("n", 1)]


@pytest.mark.parametrize(
    ("name", "payload", "options", "said"),
    [
        ("a.b", None, {}, "signal 'a.b'"),
        ("", None, {}, "signal ''"),
        (7, None, {}, "signal 7"),
        ("n", math.nan, {}, "payload"),
        ("n", {"deep": ["\udfff"]}, {}, r"payload\.deep\[0\]|payload"),
        ("n", "x" * (64 * 1024), {}, r"65,538 bytes of JSON, and the limit is 65,536"),
        ("n", None, {"request_id": ""}, "request_id"),
        ("n", None, {"request_id": 7}, "request_id"),
    ],
)
async def test_a_bad_signal_is_refused_at_the_door(
    handle: Handle[int], store: Store, name: Any, payload: Any, options: dict[str, Any], said: str
) -> None:
    """Nothing of it reaches the store."""
    with pytest.raises(InvalidRequest, match=said):
        await handle.signal(name, payload, **options)

    assert store.calls["append"] == 1


async def test_an_ended_run_takes_no_signal_and_no_value(
    handle: Handle[int], store: Store, broker: Broker
) -> None:
    """The sender is told how it ended. Cancelling it changes nothing."""
    await complete(store, broker, "a", 2)

    with pytest.raises(SignalRejected, match=r"run a cannot take signal 'n': it has ended \(COMPLETED\)"):
        await handle.signal("n")
    with pytest.raises(SignalRejected, match="promise 'p'"):
        await handle.resolve("p", 1)
    await handle.cancel()
    assert len(await handle.journal()) == 2


async def test_cancelling_twice_is_cancelling_once(handle: Handle[int]) -> None:
    """The first reason stays."""
    await handle.cancel("first")
    await handle.cancel("second")

    events = [entry.event for entry in await handle.journal()]
    assert [event.reason for event in events if isinstance(event, ev.CancelRequested)] == ["first"]


@pytest.mark.parametrize("reason", ["\ud800", "x" * 70_000, 7])
async def test_a_reason_is_text(handle: Handle[int], reason: Any) -> None:
    """What a journal cannot hold is refused at the door."""
    with pytest.raises(InvalidRequest, match="reason"):
        await handle.cancel(reason)


async def test_a_promise_is_resolved_once(handle: Handle[int], store: Store) -> None:
    """The second resolution is refused, a lost reply to the first is not a second one."""
    await wait_for(store, "p", "q")
    store.lost_replies = 1
    await handle.resolve("p", {"x": 1})
    await handle.reject("q", "no")

    with pytest.raises(AlreadyResolved, match="promise 'p' of run a was resolved before"):
        await handle.resolve("p", 2)
    with pytest.raises(AlreadyResolved):
        await handle.reject("q", "again")
    events = [entry.event for entry in await handle.journal()]
    assert [event.result for event in events if isinstance(event, ev.PromiseResolved)] == [
        ev.Result(ok={"x": 1}),
        ev.Result(error=ev.Error(type="Rejected", message="no")),
    ]


async def test_two_who_resolve_at_once_are_one_and_a_refusal(handle: Handle[int], store: Store) -> None:
    """One wins; the other is told."""
    await wait_for(store, "p")
    outcomes = await asyncio.gather(handle.resolve("p", 1), handle.resolve("p", 2), return_exceptions=True)

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AlreadyResolved", "NoneType"]


async def test_a_promise_that_is_not_there_is_named_with_those_that_are(
    handle: Handle[int], store: Store
) -> None:
    """A misspelt name is easy to see."""
    with pytest.raises(NotFound, match="run a has no promise 'p'; it has: none"):
        await handle.resolve("p")
    await wait_for(store, "payment", "address")

    with pytest.raises(NotFound, match="it has: address, payment"):
        await handle.reject("paymnet", "x")


@pytest.mark.parametrize(
    "verb",
    [
        Handle.status,
        Handle.describe,
        Handle.journal,
        Handle.events,
        Handle.state,
        Handle.cancel,
        lambda handle: handle.signal("n"),
        lambda handle: handle.resolve("p", 1),
        lambda handle: handle.reject("p", "x"),
    ],
)
async def test_a_run_that_is_not_there_is_not_found(
    client: Client, verb: Callable[[Handle[Any]], Coroutine[Any, Any, Any]]
) -> None:
    """Every verb says so, for a child run as well."""
    for run_id in ("ghost", "ghost:1.0"):
        with pytest.raises(NotFound, match=f"there is no run '{run_id}' in namespace 'default'"):
            await verb(client.handle(run_id))


async def test_a_store_that_is_down_is_the_callers_to_know(handle: Handle[int], store: Store) -> None:
    """Nothing was written."""
    store.is_down = True

    with pytest.raises(StoreUnavailable):
        await handle.signal("n")
    with pytest.raises(StoreUnavailable):
        await handle.status()
