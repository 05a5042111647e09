"""Starting runs: what is refused at the door, what is written, what happens when something is away."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import math
from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.sdk.twins import Broker, Store, add, plain, ship
from tidewheel import Client, InvalidRequest
from tidewheel.broker.message import Publication
from tidewheel.broker.work_items import RunHint, read_item
from tidewheel.journal import events as ev
from tidewheel.sdk.limits import Limits
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.store.records import RunRef


def circle() -> list[Any]:
    """Return a list that holds itself."""
    one: list[Any] = []
    one.append(one)
    return one


async def test_a_start_is_in_the_journal_and_in_the_work_queue(
    client: Client, store: Store, broker: Broker
) -> None:
    """A start is committed, then hinted at."""
    handle = await client.start(ship, dt.date(2025, 1, 31), run_id="s-1", idempotency_key="k/1: ü")

    (entry,) = await handle.journal()
    assert isinstance(entry.event, ev.ExecutionStarted)
    assert (entry.event.workflow, entry.event.version, entry.event.input) == (
        "shipping",
        "v2",
        ["2025-01-31"],
    )
    (published,) = broker.published
    assert published.routing_key == "tidewheel.work.ships"
    assert read_item(published.message) == RunHint(namespace="default", run_id="s-1")
    assert await broker.depth("tidewheel.work.ships") == 1


async def test_a_start_by_name_knows_only_the_name(client: Client, store: Store) -> None:
    """Version, digest and queue are those of whoever has the workflow."""
    handle = await client.start("elsewhere", 1, "two", queue="far")

    record = await store.find(RunRef("default", handle.run_id))
    assert record is not None
    assert (record.workflow, record.version, record.digest, record.queue) == ("elsewhere", "", "", "far")


async def test_made_up_ids_are_readable_and_sort_by_time(client: Client) -> None:
    """An id begins with the workflow; the rest sorts as the runs were started."""
    first = (await client.start(add, 1)).run_id
    await asyncio.sleep(0.002)
    second = (await client.start(add, 1)).run_id

    assert first.startswith("add-")
    assert len(first) == len("add-") + 20
    assert first < second


async def test_chance_can_be_given(store: Store, broker: Broker) -> None:
    """With the same chance and time the same ids are made."""
    clients = [await Client.connect(store, broker, token_bytes=bytes) for _ in range(2)]
    one, other = [await client.start(add, 1) for client in clients]

    assert one.run_id == other.run_id


@pytest.mark.parametrize(
    ("workflow", "args", "options", "said"),
    [
        (plain, (), {}, "not a workflow: decorate it"),
        (print, (), {}, "not a workflow"),
        (None, (), {}, "not a workflow"),
        ("no spaces", (), {}, "workflow 'no spaces' is not allowed"),
        ("", (), {}, "is not allowed"),
        (add, (), {}, "takes"),
        (add, (1, 2, 3), {}, "takes"),
        (add, ("one",), {}, r"input\[0\]"),
        (add, (math.nan,), {}, r"input\[0\]"),
        ("any", (math.inf,), {}, r"input\[0\]"),
        ("any", (2**70,), {}, r"input\[0\]"),
        ("any", ("\ud800",), {}, r"input\[0\]"),
        ("any", (circle(),), {}, r"input\[0\]"),
        ("any", (object(),), {}, r"input\[0\]"),
        (add, (1,), {"run_id": "a:1"}, "run id 'a:1' is not allowed"),
        (add, (1,), {"run_id": ""}, "run id"),
        (add, (1,), {"run_id": "x" * 201}, "run id"),
        (add, (1,), {"run_id": 7}, "run id 7"),
        (add, (1,), {"queue": "a.b"}, "queue 'a.b'"),
        (add, (1,), {"queue": ""}, "queue ''"),
        (add, (1,), {"idempotency_key": ""}, "idempotency_key ''"),
        (add, (1,), {"idempotency_key": "a\0b"}, "printable"),
        (add, (1,), {"idempotency_key": "\ud800"}, "printable"),
    ],
)
async def test_what_can_never_work_is_refused_at_the_door(
    client: Client, store: Store, workflow: Any, args: tuple[Any, ...], options: dict[str, Any], said: str
) -> None:
    """Bad input never reaches the store."""
    with pytest.raises(InvalidRequest, match=said):
        await client.start(workflow, *args, **options)

    assert store.calls["append"] == 0


async def test_an_input_over_the_limit_is_refused_with_what_to_do(store: Store, broker: Broker) -> None:
    """The refusal names the size, the limit and the way out; the limit itself is allowed."""
    client = await Client.connect(store, broker, limits=Limits(payload_max_bytes=2048))
    fits = "x" * (2048 - len('[""]'))

    await client.start("any", fits, run_id="fits")
    with pytest.raises(
        InvalidRequest, match=r"2,049 bytes of JSON, and the limit is 2,048: store it elsewhere"
    ):
        await client.start("any", fits + "x", run_id="large")

    assert [run.run_id for run in await client.runs()] == ["fits"]


async def test_a_run_is_started_although_the_broker_is_away(
    client: Client, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """The hint is only a hint; an outage is said once, and again when it comes back."""
    broker.is_down = True
    first = await client.start(add, 1)
    await client.start(add, 2)
    warned_once = len(caplog.records)
    broker.is_down = False
    await client.start(add, 3)
    broker.is_down = True
    await client.start(add, 4)

    assert await first.status() == "RUNNING"
    assert warned_once == 1
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "the broker is down; the keeper will tell one" in caplog.text


async def test_a_broker_that_hangs_does_not_hang_the_caller(
    client: Client, broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A hint has two seconds; for a while after, nobody else is held up by the same broker."""
    tries = 0

    async def hang(_: object) -> None:
        nonlocal tries
        tries += 1
        await asyncio.Event().wait()

    async def started_within_s() -> float:
        began_s = loop.time()
        await client.start(add, 1)
        return loop.time() - began_s

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(broker, "publish", hang)

    took_s = [await started_within_s() for _ in range(3)]
    await asyncio.sleep(5)
    both_s = await asyncio.gather(started_within_s(), started_within_s())

    assert took_s == pytest.approx([2, 0, 0])
    assert sorted(both_s) == pytest.approx([0, 2])
    assert tries == 2
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "the broker took longer than 2 s; the keeper will tell one"
    ]


async def test_a_broker_that_is_back_is_told_at_once(
    client: Client, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal takes no time, so the next start tries again; and it is said that hints are given again."""
    caplog.set_level(logging.INFO)
    broker.is_down = True
    await client.start(add, 1)
    broker.is_down = False

    await client.start(add, 2)

    assert len(broker.published) == 1
    assert caplog.messages[-1] == "workers are told again"


async def test_the_hint_waits_where_no_worker_has_been_yet(client: Client, broker: Broker) -> None:
    """A work queue that is missing is made, so that the first worker finds the hint in it."""
    await client.start(add, 1, queue="tomorrow")

    assert await broker.depth("tidewheel.work.tomorrow") == 1


async def test_starts_that_are_answered_together_are_hinted_at_together(
    client: Client, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a message of its own, and all go to the broker in one exchange."""
    sizes: list[int] = []
    publish = broker.publish

    async def count(wanted: Sequence[Publication]) -> None:
        sizes.append(len(wanted))
        await publish(wanted)

    monkeypatch.setattr(broker, "publish", count)

    handles = await asyncio.gather(*(client.start(add, number) for number in range(20)))

    hinted = [read_item(published.message) for published in broker.published]
    assert hinted == [RunHint(namespace="default", run_id=handle.run_id) for handle in handles]
    assert len(sizes) < len(handles)


async def test_one_who_leaves_does_not_take_the_hints_of_others_along(
    client: Client, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that is cancelled while its hint is on its way leaves the others waiting for theirs."""
    goes_on = asyncio.Event()
    publish = broker.publish

    async def wait(wanted: Sequence[Publication]) -> None:
        await goes_on.wait()
        await publish(wanted)

    monkeypatch.setattr(broker, "publish", wait)
    leaving, staying = (asyncio.create_task(client.start(add, number)) for number in range(2))
    await asyncio.sleep(0.1)
    leaving.cancel()
    await asyncio.sleep(0.1)
    goes_on.set()
    await staying

    assert leaving.cancelled()
    assert len(broker.published) == 2


@pytest.mark.parametrize("moments", range(8))
async def test_closing_a_client_lets_those_go_on_who_wait_for_a_hint(
    store: Store, broker: Broker, monkeypatch: pytest.MonkeyPatch, moments: int
) -> None:
    """Whenever that is: before the hint is sent, while it is on its way, or after the commit alone."""

    async def hang(_: object) -> None:
        await asyncio.Event().wait()

    client = await Client.connect(store, broker)
    monkeypatch.setattr(broker, "publish", hang)
    starting = asyncio.create_task(client.start(add, 1, run_id="s-1"))
    for _ in range(moments):
        await asyncio.sleep(0)

    await client.close()

    loop = asyncio.get_running_loop()
    began_s = loop.time()
    with contextlib.suppress(InvalidRequest):  # it had not begun
        await starting
    assert loop.time() == began_s


async def test_a_bug_in_a_hint_is_for_all_to_see_who_wait_for_it(
    client: Client, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no trouble of a broker is not hidden."""

    async def stumble(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(broker, "publish", stumble)

    found = await asyncio.gather(*(client.start(add, number) for number in range(2)), return_exceptions=True)

    assert [type(one) for one in found] == [ZeroDivisionError] * 2


async def test_a_store_that_is_down_is_the_callers_to_know(client: Client, store: Store) -> None:
    """Nothing was started, and that is what the error says."""
    store.is_down = True

    with pytest.raises(StoreUnavailable):
        await client.start(add, 1)

    assert store.calls["append"] == 1


@pytest.mark.parametrize("lost", ["lost_replies", "lost_requests"])
async def test_a_lost_reply_is_resolved_by_asking_again(client: Client, store: Store, lost: str) -> None:
    """Whether the commit happened or not, the run is there once and is no mismatch."""
    setattr(store, lost, 3)

    handle = await client.start(add, 1)

    assert store.calls["append"] == 4
    assert not handle.mismatch
    assert [run.run_id for run in await client.runs()] == [handle.run_id]


async def test_asking_again_has_an_end(client: Client, store: Store) -> None:
    """Where nobody can tell, the caller is told that, with the id to ask again by."""
    store.lost_replies = 1000

    with pytest.raises(CommitUnknown, match=r"whether this was written for run 'a-1'; ask again"):
        await client.start(add, 1, run_id="a-1")

    assert store.calls["append"] == 7


async def test_a_store_that_goes_down_after_a_lost_reply_leaves_it_unknown(
    client: Client, store: Store
) -> None:
    """That nothing was written would be a lie: the first try may have been."""
    store.lost_replies = 1

    starting = asyncio.create_task(client.start(add, 1, run_id="a-1"))
    await asyncio.sleep(0.01)
    store.is_down = True
    with pytest.raises(CommitUnknown):
        await starting

    store.is_down = False
    assert await client.handle("a-1").status() == "RUNNING"


async def test_one_key_is_one_run(client: Client, store: Store) -> None:
    """A hundred starts at once with one key give one run; another input is a mismatch."""
    starts = [client.start(add, number // 99, idempotency_key="order-42") for number in range(100)]

    handles = await asyncio.gather(*starts)

    assert len({handle.run_id for handle in handles}) == 1
    assert [handle.mismatch for handle in handles] == [False] * 99 + [True]
    assert len(await client.runs()) == 1


async def test_one_id_is_one_run(client: Client) -> None:
    """The same workflow and input is the same start; anything else is a mismatch."""
    first = await client.start(add, 1, run_id="a")
    same = await client.start(add, 1, run_id="a")
    other_input = await client.start(add, 2, run_id="a")
    other_workflow = await client.start("sub", 1, run_id="a")

    assert (same.mismatch, other_input.mismatch, other_workflow.mismatch) == (False, True, True)
    assert (first.existed, same.existed, other_input.existed) == (False, True, True)


async def test_runs_are_listed_in_pages(client: Client, store: Store) -> None:
    """Newest first; the next page is before the last of this."""
    for number in range(5):
        await client.start(add, number, run_id=f"a-{number}")
        await asyncio.sleep(1)
    await client.start("other", run_id="other")

    page = await client.runs(workflow="add", status="RUNNING", limit=3)
    rest = await client.runs(workflow="add", open_only=True, limit=3, before=page[-1].key)

    assert [run.run_id for run in page + rest] == ["a-4", "a-3", "a-2", "a-1", "a-0"]
    assert await client.runs(parked_only=True) == []


@pytest.mark.parametrize(
    "wrong", [{"limit": 0}, {"limit": True}, {"limit": 10**6}, {"status": "running"}, {"workflow": "a b"}]
)
async def test_a_listing_that_makes_no_sense_is_refused(client: Client, wrong: dict[str, Any]) -> None:
    """A misspelt status would otherwise look like no runs."""
    with pytest.raises(InvalidRequest):
        await client.runs(**wrong)


async def test_namespaces_do_not_see_each_other(store: Store, broker: Broker) -> None:
    """The same id in two namespaces is two runs; the hint goes to the namespace's own queue."""
    here, there = [await Client.connect(store, broker, namespace) for namespace in ("here", "there")]
    await here.start(add, 1, run_id="a")
    await there.start(add, 2, run_id="a")

    assert [len(await client.runs()) for client in (here, there)] == [1, 1]
    assert {each.routing_key for each in broker.published} == {
        "tidewheel.here.work.default",
        "tidewheel.there.work.default",
    }


async def test_a_closed_client_says_so(store: Store, broker: Broker) -> None:
    """Closing twice is fine; what was passed in stays open; every verb refuses."""
    client = await Client.connect(store, broker)
    handle = await client.start(add, 1)
    await client.close()
    await client.close()

    for verb in (
        client.start(add, 1),
        client.runs(),
        handle.status(),
        handle.signal("x"),
        handle.result(),
        handle.state(),
    ):
        with pytest.raises(InvalidRequest, match="was closed"):
            await verb
    with pytest.raises(InvalidRequest, match="was closed"):
        client.handle("a")
    assert await broker.depth("tidewheel.work.default") == 1


def test_another_event_loop_is_refused() -> None:
    """Where it would hang or break in strange ways, it says what is wrong."""
    client = asyncio.run(Client.connect(Store(), Broker()))

    with pytest.raises(InvalidRequest, match="belongs to another event loop"):
        asyncio.run(client.runs())


async def test_a_store_and_a_broker_are_opened_by_their_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not passed comes from the environment."""
    monkeypatch.setenv("TIDEWHEEL_BROKER", "memory://")
    monkeypatch.setenv("TIDEWHEEL_NAMESPACE", "by-url")
    async with await Client.connect("memory://") as client:
        handle = await client.start(add, 1)

        assert await handle.status() == "RUNNING"
        assert client.namespace == "by-url"


async def test_connecting_refuses_what_can_never_work() -> None:
    """A bad argument is named as the argument it is."""
    with pytest.raises(InvalidRequest, match="namespace: namespace 'a b' is not allowed"):
        await Client.connect(Store(), Broker(), "a b")
    with pytest.raises(InvalidRequest, match="store: this is no URL"):
        await Client.connect("tidewheel.db")
