"""A run that is written with its first moves, on Postgres: nobody looks first whether it is there."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.conformance.store.driving import Run, a_start, done, ends, ok, resumes, signal, task, waits
from tests.conformance.store.inside import InsidePostgres
from tests.conformance.store.test_publishing import check
from tidewheel.journal import events as ev
from tidewheel.store.append import Append, Await, ChildStart, Fate, Resolved, Verdict
from tidewheel.store.postgres.store import PostgresStore

CHILD = ChildStart(workflow="mail", version="", digest="", queue="post")


@pytest.fixture
async def stores(journals: str) -> AsyncIterator[list[PostgresStore]]:
    """Two stores on one database, as two workers have them; both have heard of its clock."""
    opened = [await PostgresStore.open(journals) for _ in range(2)]
    for number, store in enumerate(opened):
        await Run(store, f"first-{number}").start()
    yield opened
    for store in opened:
        await store.close()


@pytest.fixture
def store(stores: list[PostgresStore]) -> PostgresStore:
    """The one whose exchanges are counted."""
    return stores[0]


def a_step(path: str = "0", **options: Any) -> ev.InvokeScheduled:
    """Return the schedule of a step that whoever writes it executes."""
    return task(path, dispatch="inline", **options)


FIRST_MOVES: dict[str, tuple[ev.Event, ...]] = {
    "a step": (a_step(), waits("0")),
    "keyed steps": (a_step("0", key="a"), a_step("1", key="1"), a_step("2", key="a"), waits("0")),
    "many steps": (*(a_step(str(place)) for place in range(40)), waits("0")),
    "a queued step": (task("0", dispatch="queued"), waits("0")),
    "a timer": (
        ev.TimerScheduled(promise_id="0", fire_at=dt.datetime(2100, 1, 1, tzinfo=dt.UTC)),
        waits("0"),
    ),
    "a promise": (ev.PromiseCreated(promise_id="0", name="yes"), waits("0")),
}


@pytest.mark.parametrize("first", FIRST_MOVES)
async def test_a_start_with_its_first_moves_costs_one_exchange(
    store: PostgresStore, journals: str, first: str
) -> None:
    """Its name says whether it is there: what is written, and published, is what asking first comes to."""
    run = Run(store, "r")
    before = store.counters.round_trips

    answer = await run.open(*FIRST_MOVES[first], mark=Await(reply_to="client-1"))

    assert store.counters.round_trips - before == 1
    assert (answer.fate, answer.existed) == (Fate.COMMITTED, False)
    await check(InsidePostgres(store, journals), run)


async def test_a_step_of_it_costs_one_exchange(store: PostgresStore) -> None:
    """The run is remembered as its first moves left it, so nothing has to be read of it, to its end."""
    run = Run(store, "r")
    before = store.counters.round_trips

    await run.open(a_step(), waits("0"))
    await run.move(resumes("0"), a_step("1"), waits("1"), facts=[done("0")])
    await run.move(resumes("1"), ends("done"), facts=[done("1")])

    assert store.counters.round_trips - before == 3
    assert (await run.record()).status == "COMPLETED"
    assert [entry.run_seq for entry in await run.journal()] == list(range(12))


async def test_a_run_that_only_waits_from_the_first_is_not_remembered(store: PostgresStore) -> None:
    """Whoever is woken for it loads it: a million of them take no memory."""
    run = Run(store, "r")

    await run.open(waits())

    assert store._memory.take(run.ref) is None


async def test_many_share_one_exchange(store: PostgresStore) -> None:
    """Those that are new, those that move on, and those that only start: each is as it is by itself."""
    older = Run(store, "older")
    await older.open(a_step(), waits("0"))
    runs = [Run(store, f"run-{number}") for number in range(20)]
    requests = [
        run.opening(a_step(key="k"), waits("0"), start=a_start(number), mark=Await(reply_to=f"c-{number}"))
        for number, run in enumerate(runs)
    ]
    requests.insert(3, Append(run=Run(store, "plain").ref, start=a_start(1)))
    requests.insert(
        7, Append(run=older.ref, facts=(done("0"),), moves=older.moves(resumes("0"), a_step("1"), waits("1")))
    )
    before = store.counters.round_trips

    answers = await store.append(requests)

    assert store.counters.round_trips - before == 1
    assert [answer.fate for answer in answers].count(Fate.COMMITTED) == 21
    for number, run in enumerate(runs):
        record, (first, *_) = await run.record(), await run.journal()
        assert isinstance(first.event, ev.ExecutionStarted)
        assert (first.event.input, record.reply_to) == ([number], (f"c-{number}",))
        assert (record.wake_at, record.owner, (await run.step()).step_id) == (None, "worker-1", "k")
    assert (await Run(store, "plain").record()).wake_at is not None
    assert (await older.record()).last_seq == 7


async def test_what_is_not_remembered_is_asked_for(store: PostgresStore) -> None:
    """A child is a run of its own: the append asks first, and comes to the same."""
    run, child = Run(store, "r"), Run(store, "r:0")

    answer = await run.open(task("0", kind="workflow", dispatch="queued"), waits("0"), children={"0": CHILD})

    assert answer.fate is Fate.COMMITTED
    assert await run.story() == ["ExecutionStarted", "InvokeScheduled", "ExecutionAwaiting", "InvokeStarted"]
    assert await child.story() == ["ExecutionStarted"]


async def test_signals_and_promises_find_what_the_first_moves_left(stores: list[PostgresStore]) -> None:
    """Another process has not written it, and sees all of it."""
    mine, theirs = Run(stores[0], "r"), Run(stores[1], "r")
    await mine.open(ev.PromiseCreated(promise_id="0", name="yes"), a_step("1"), waits("0", "1"))

    told = await theirs.tell(signal("s"), Resolved(name="yes", result=ok(1), key="k"))
    answer = await mine.move(resumes("1"), waits("0"), facts=[done("1")])

    assert told.verdicts == [Verdict.WRITTEN, Verdict.WRITTEN]
    assert answer.fate is Fate.COMMITTED
    assert [type(entry.event) for entry in answer.landed] == [ev.SignalDelivered, ev.PromiseResolved]


@pytest.mark.parametrize("was", ["started", "opened", "ended"])
@pytest.mark.parametrize("who", ["this process", "another process"])
async def test_a_run_that_is_there_is_found(
    stores: list[PostgresStore], caplog: pytest.LogCaptureFixture, was: str, who: str
) -> None:
    """Whoever started it: the write is refused by the name, and asking tells what is there. That is usual."""
    first, late = Run(stores[0 if who == "this process" else 1], "r"), Run(stores[0], "r")
    if was == "started":
        await first.start(1)
    else:
        await first.open(ends() if was == "ended" else a_step(), *([] if was == "ended" else [waits("0")]))
    before = await first.record()

    with caplog.at_level(logging.WARNING):
        answer = await late.open(a_step("0", key="k"), waits("0"), start=a_start(2))

    assert (answer.existed, answer.mismatch) == (True, True)
    assert answer.fate is (Fate.ENDED if was == "ended" else Fate.STALE)
    assert (await first.record()).last_seq == before.last_seq
    assert caplog.records == []


async def test_equal_first_moves_of_two_processes_are_one_run(stores: list[PostgresStore]) -> None:
    """As where a command was delivered twice: one of each pair has the run, the other is told so."""
    names = [f"run-{number}" for number in range(50)]

    async def open_(store: PostgresStore, name: str) -> Fate | None:
        answer = await Run(store, name).open(a_step(), waits("0"), start=a_start(1))
        return answer.fate

    fates = await asyncio.gather(*(open_(store, name) for name in names for store in stores))

    for pair in zip(fates[::2], fates[1::2], strict=True):
        assert sorted(str(fate) for fate in pair) == ["Fate.COMMITTED", "Fate.STALE"]
    stories = [await Run(stores[0], name).story() for name in names]
    assert all(story == ["ExecutionStarted", "InvokeScheduled", "ExecutionAwaiting"] for story in stories)


async def test_the_same_append_again_finds_itself(stores: list[PostgresStore]) -> None:
    """Also where another process repeats it, which remembers nothing of it."""
    run = Run(stores[0], "r")
    request = run.opening(a_step(), waits("0"), start=a_start(1))
    await stores[0].append([request])

    again = [(await store.append([request]))[0] for store in stores]

    assert [(answer.fate, answer.existed, answer.last_seq) for answer in again] == [
        (Fate.REPEATED, True, 2),
        (Fate.REPEATED, True, 2),
    ]
    assert len(await run.story()) == 3


async def test_a_clock_that_is_far_off_is_not_written(store: PostgresStore) -> None:
    """What this process takes for the database's time is checked there, for a new run too."""
    clock = store._writer._database_clock
    assert clock._began_us is not None
    clock._began_us += 3_600_000_000
    run = Run(store, "r")

    answer = await run.open(a_step(), waits("0"))

    now = await store.now()
    assert answer.fate is Fate.COMMITTED
    assert abs((await run.record()).created_at - now) < dt.timedelta(minutes=1)
    assert all(
        entry.at is not None and entry.at < now + dt.timedelta(minutes=1) for entry in await run.journal()
    )
