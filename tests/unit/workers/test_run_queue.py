"""A queue with a limit: what clients, workers and the keeper make of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.conformance.store.driving import Run
from tests.unit.workers.house import House
from tests.unit.workers.postbox import Postbox
from tidewheel import App, Context, Overloaded, RunCancelled
from tidewheel.store.admission import Overload, QueueLimit
from tidewheel.store.append import Admit, Append, Appended
from tidewheel.store.errors import CommitUnknown
from tidewheel.store.memory import MemoryStore
from tidewheel.store.run_queue import dequeue_and_start
from tidewheel.workers.run_queue import RunQueue

app = App("limited")
began: list[str] = []


@app.workflow
async def waits(ctx: Context, name: str) -> str:
    """Wait to be told to go on."""
    began.append(name)
    return f"{name} heard {await ctx.signal('go')}"


@pytest.fixture(autouse=True)
def _nothing_began() -> None:
    began.clear()


@pytest.fixture
def postbox(house: House) -> Postbox:
    """The exchange for commands."""
    return Postbox(house)


async def limit(house: House, *, running: int = 1, pending: int = 10, overload: Overload = "queue") -> None:
    """Set the limit of the default queue."""
    given = QueueLimit(
        namespace="default", queue="default", max_running=running, max_pending=pending, overload=overload
    )
    await house.store.admission.put(given)


async def test_a_start_that_is_refused_is_overloaded(house: House) -> None:
    """It says what is the matter and when to come again, and nothing was started."""
    await limit(house, overload="reject")
    client = await house.client()
    await client.start(waits, "a", run_id="a")

    with pytest.raises(
        Overloaded, match="'default' takes no more runs: 1 of 1 are under way; try again"
    ) as told:
        await client.start(waits, "b", run_id="b")

    assert told.value.retry_after == 5.0
    assert [run.run_id for run in await client.runs()] == ["a"]


async def test_a_queued_run_begins_when_another_ends(house: House) -> None:
    """The worker that ends a run lets the next begin: no keeper is needed for that."""
    await limit(house)
    await house.worker(app)
    client = await house.client()
    first, second = [await client.start(waits, name, run_id=name) for name in "ab"]
    await house.until(lambda: began == ["a"])
    status = await second.status()

    await second.signal("go", 2)
    await first.signal("go", 1)
    results = [await handle.result() for handle in (first, second)]

    assert status == "PENDING"
    assert results == ["a heard 1", "b heard 2"]
    assert [type(event).__name__ for event in house.events("b")][:3] == [
        "ExecutionStarted",
        "SignalDelivered",
        "RunAdmitted",
    ]


async def test_the_keeper_lets_runs_begin_that_nobody_thought_of(house: House) -> None:
    """As where the limit was raised, or the worker that made room died."""
    await limit(house, running=0)
    await house.worker(app)
    client = await house.client()
    handle = await client.start(waits, "a", run_id="a")
    await house.keeper()
    await asyncio.sleep(3)
    before = list(began)

    await limit(house, running=1)
    await house.until(lambda: began == ["a"], seconds=5)
    await handle.signal("go", 1)

    assert before == []
    assert await handle.result() == "a heard 1"


async def test_a_queued_run_that_is_cancelled_runs_no_code(house: House) -> None:
    """And whoever waits for it is told."""
    await limit(house, running=0)
    await house.worker(app)
    client = await house.client()
    handle = await client.start(waits, "a", run_id="a")
    waiting = asyncio.ensure_future(handle.result())

    await handle.cancel("not needed")

    with pytest.raises(RunCancelled, match="not needed"):
        await waiting
    assert began == []


async def test_a_hint_for_a_queued_run_changes_nothing(house: House) -> None:
    """A message may come that nobody should have sent: the store decides."""
    await limit(house, running=0)
    await house.worker(app)
    client = await house.client()
    await client.start(waits, "a", run_id="a")

    await house.hint("a")
    await asyncio.sleep(1)

    assert (began, house.run("a").status) == ([], "PENDING")
    assert house.run("a").parked is None


async def test_a_run_that_a_message_starts_is_queued(house: House, postbox: Postbox) -> None:
    """The worker has shown its input to the code by then: that is forgotten, and done again in its turn."""
    await limit(house)
    await house.worker(app)
    for name in "ab":
        await postbox.start("waits", name, run_id=name)
    await house.until(lambda: len(house.store.rows.runs) == 2)
    await asyncio.sleep(1)
    status = {name: house.run(name).status for name in "ab"}
    waiting = next(name for name, word in status.items() if word == "PENDING")
    client = await house.client()

    for name in "ab":
        await client.handle(name).signal("go", 1)
    results = [await client.handle(name).result() for name in "ab"]

    assert sorted(status.values()) == ["PENDING", "RUNNING"]
    assert results == ["a heard 1", "b heard 1"]
    assert house.kinds(waiting)["RunAdmitted"] == 1
    assert await postbox.reasons() == []


async def test_a_start_by_message_that_is_refused_is_a_dead_letter(house: House, postbox: Postbox) -> None:
    """Nobody can be told, so it is kept with the reason; those behind it are followed."""
    await limit(house, overload="reject")
    await house.worker(app)
    await postbox.start("waits", "a", run_id="a")
    await house.until(lambda: began == ["a"])

    await postbox.start("waits", "b", run_id="b")
    await postbox.signal("a", "go", payload=1)
    await house.until(lambda: house.run("a").ended)

    (told,) = await postbox.reasons()
    assert "queue 'default' takes no more runs" in told
    assert await postbox.runs() == {"a": "COMPLETED"}


async def test_the_worker_looks_once_for_many_ends(house: House) -> None:
    """Whatever makes room while it looks is looked at once more."""
    published: list[object] = []

    async def publish(wanted: object) -> None:
        published.append(wanted)

    queue = RunQueue(house.store, publish)
    await limit(house, running=0)
    client = await house.client()
    for name in "abc":
        await client.start(waits, name, run_id=name)
    await limit(house, running=3)

    for _ in range(100):
        queue.stir()
    await queue.idle()

    assert len(published) == 1
    assert [house.run(name).status for name in "abc"] == ["RUNNING"] * 3


class Silent(MemoryStore):
    """A store whose commits nobody hears of."""

    async def append(self, batch: Sequence[Append]) -> list[Appended]:
        """Commit, and say nothing of admissions."""
        answers = await super().append(batch)
        if any(isinstance(one.mark, Admit) for one in batch):
            raise CommitUnknown("the reply was lost")
        return answers


async def test_what_nobody_can_tell_of_is_said_to_have_failed() -> None:
    """The contract has a word for it; asking again finds out."""
    store = Silent()
    await store.admission.put(QueueLimit(namespace="default", queue="main", max_running=0))
    await Run(store, "a").start()
    await store.admission.remove("default", "main")

    found = await dequeue_and_start(store)

    assert [(one.run_id, one.status) for one in found] == [("a", "FAILED")]
    assert await dequeue_and_start(store) == []
