"""Runs that a process remembers as it left them: their appends ask nothing first, and nothing goes wrong."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator

import psycopg
import pytest

from tests.conformance.store.driving import Run, a_start, done, ends, failed, resumes, signal, task, waits
from tidewheel.journal import events as ev
from tidewheel.store.append import Append, Await, Beat, Fate, Fired, Verdict
from tidewheel.store.postgres.config import PostgresConfig
from tidewheel.store.postgres.store import PostgresStore

PATIENCE_S = 20


@pytest.fixture
async def stores(journals: str) -> AsyncIterator[list[PostgresStore]]:
    """Two stores on one database, as two processes have them."""
    opened = [await PostgresStore.open(journals) for _ in range(2)]
    yield opened
    for store in opened:
        await store.close()


@pytest.fixture
def store(stores: list[PostgresStore]) -> PostgresStore:
    """The one that remembers."""
    return stores[0]


@pytest.fixture
async def busy(store: PostgresStore) -> Run:
    """A run whose first step is open, as the worker that loaded it knows it."""
    run = Run(store, "r")
    await run.start()
    await run.see()
    await run.move(task("0", dispatch="inline"), waits("0"))
    return run


async def round_trips(store: PostgresStore, run: Run, *events: ev.Event, completes: str) -> int:
    """Complete a step, go on, and return how often the database was asked."""
    before = store.counters.round_trips
    answer = await run.move(resumes(completes), *events, facts=[done(completes)])
    assert answer.fate is Fate.COMMITTED
    return store.counters.round_trips - before


async def test_a_step_of_a_run_that_is_remembered_costs_one_exchange(store: PostgresStore, busy: Run) -> None:
    """And so does the run's end; the journal is what it is without remembering."""
    found = [
        await round_trips(store, busy, task("1", dispatch="inline"), waits("1"), completes="0"),
        await round_trips(store, busy, ends("done"), completes="1"),
    ]

    assert found == [1, 1]
    assert (await busy.record()).ended
    assert await busy.story() == [
        "ExecutionStarted",
        *("InvokeScheduled", "ExecutionAwaiting", "InvokeStarted", "InvokeCompleted", "ExecutionResumed"),
        *("InvokeScheduled", "ExecutionAwaiting", "InvokeStarted", "InvokeCompleted", "ExecutionResumed"),
        "ExecutionCompleted",
    ]


async def test_a_start_costs_one_exchange(store: PostgresStore) -> None:
    """Nobody has to look whether the run is there: its name says so."""
    await Run(store, "first").start()  # by which the database's clock is known
    before = store.counters.round_trips

    await Run(store, "second").start()

    assert store.counters.round_trips - before == 1


async def test_appends_of_one_run_share_an_exchange(store: PostgresStore, busy: Run) -> None:
    """They are done in their order."""
    before = store.counters.round_trips
    beat = Append(run=busy.ref, facts=(Beat(path="0", attempt=1),))
    over = Append(run=busy.ref, facts=(done("0"),), moves=busy.moves(resumes("0"), ends()))

    answers = await store.append([beat, over, beat])

    assert [answer.verdicts for answer in answers] == [[Verdict.LATE], [Verdict.WRITTEN], [Verdict.ENDED]]
    assert store.counters.round_trips - before == 1


async def test_a_run_that_only_waits_is_not_remembered(store: PostgresStore, busy: Run) -> None:
    """Whoever is woken for it loads it first; a million of them take no memory."""
    at = await store.now() + dt.timedelta(days=1)

    await busy.move(
        resumes("0"), ev.TimerScheduled(promise_id="1", fire_at=at), waits("1"), facts=[done("0")]
    )

    assert store._memory.take(busy.ref) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda run: run.tell(signal()),
        lambda run: run.mark(Await(reply_to="somebody")),
        lambda run: run.tell(failed("0", overdue=True)),
    ],
    ids=["an event", "a mark, which writes no event", "the same step"],
)
async def test_what_another_process_changed_is_seen(
    stores: list[PostgresStore], busy: Run, change: object
) -> None:
    """What is remembered is old then, and is not used: the answer is that of a store that asks."""
    assert callable(change)
    other = Run(stores[1], "r")
    await change(other)
    before = await other.record()

    answer = await busy.move(resumes("0"), ends(), facts=[done("0")])

    after = await other.record()
    assert after.reply_to == before.reply_to
    if await other.has_step("0"):
        assert (answer.verdicts, answer.fate) == ([Verdict.LATE], Fate.STALE)
    else:
        assert answer.fate is Fate.COMMITTED
        assert [type(entry.event).__name__ for entry in answer.landed] == (
            ["SignalDelivered"] if after.deliveries else []
        )
    assert [entry.run_seq for entry in await busy.journal()] == list(range(after.last_seq + 1))


async def test_two_processes_that_remember_one_run_do_not_write_it_twice(
    stores: list[PostgresStore], busy: Run
) -> None:
    """As when a worker that was taken for dead goes on: one of the two is told that it was too late."""
    zombie = Run(stores[1], "r")
    await zombie.see()

    answers = await asyncio.gather(
        busy.move(resumes("0"), ends("mine"), facts=[done("0")]),
        zombie.move(resumes("0"), ends("theirs"), facts=[done("0")]),
    )

    assert sorted(str(answer.fate) for answer in answers) == sorted([str(Fate.COMMITTED), str(Fate.ENDED)])
    assert (await busy.story()).count("ExecutionCompleted") == 1


async def test_many_writers_of_one_run_leave_no_hole(stores: list[PostgresStore], busy: Run) -> None:
    """Signals of one process land between the steps of another, over and over."""
    other = Run(stores[1], "r")

    async def signals() -> None:
        for number in range(40):
            await other.tell(signal(f"s{number}"))

    sending = asyncio.ensure_future(signals())
    for number in range(40):
        answer = await busy.move(
            resumes(str(number)),
            task(str(number + 1), dispatch="inline"),
            waits(str(number + 1)),
            facts=[done(str(number))],
        )
        assert answer.fate is Fate.COMMITTED
    await sending

    story = await busy.story()
    assert (story.count("SignalDelivered"), story.count("InvokeCompleted")) == (40, 40)


async def test_a_run_that_somebody_holds_is_waited_for_alone(journals: str) -> None:
    """What is remembered of it does not let it be written past a lock; others go on meanwhile."""
    patient = PostgresConfig(lock_timeout_s=60.0, statement_timeout_s=60.0, exchange_timeout_s=60.0)
    store = await PostgresStore.open(journals, config=patient)
    held, other = Run(store, "held"), Run(store, "other")
    for run in (held, other):
        await run.start()
        await run.see()
        await run.move(task("0", dispatch="inline"), waits("0"))
    with psycopg.connect(journals) as human:
        human.execute("SELECT 1 FROM tidewheel_runs WHERE run_id = 'held' FOR UPDATE")
        waiting = asyncio.ensure_future(held.move(resumes("0"), ends(), facts=[done("0")]))
        await asyncio.wait_for(other.move(resumes("0"), ends(), facts=[done("0")]), PATIENCE_S)
        assert not waiting.done()
        human.rollback()

    assert (await asyncio.wait_for(waiting, PATIENCE_S)).fate is Fate.COMMITTED
    await store.close()


async def test_equal_starts_of_two_processes_are_one_run(stores: list[PostgresStore]) -> None:
    """One of each pair is told that the run was there, whoever asked how."""
    for store in stores:
        await Run(store, f"known-{id(store)}").start()

    async def start(store: PostgresStore, run_id: str) -> bool:
        (answer,) = await store.append([Append(run=Run(store, run_id).ref, start=a_start(1))])
        return answer.existed

    names = [f"run-{number}" for number in range(100)]
    found = await asyncio.gather(*(start(store, name) for name in names for store in stores))

    assert sum(found) == len(names)


async def test_a_clock_that_is_far_off_is_not_written(store: PostgresStore, busy: Run) -> None:
    """What this process takes for the database's time is checked there."""
    clock = store._writer._database_clock
    assert clock._began_us is not None
    clock._began_us += 3_600_000_000

    await busy.move(resumes("0"), task("1"), waits("1"), facts=[done("0")])

    now = await store.now()
    assert all(
        entry.at is not None and entry.at < now + dt.timedelta(minutes=1) for entry in await busy.journal()
    )
    guessed = clock.now()
    assert guessed is not None
    assert abs(guessed - now) < dt.timedelta(minutes=1)


async def test_after_a_lost_connection_nothing_is_remembered(
    store: PostgresStore, busy: Run, journals: str
) -> None:
    """The server may be another one, whose transactions bear the same numbers."""
    with psycopg.connect(journals, autocommit=True) as human:
        human.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'tidewheel %' AND datname = current_database()"
        )
    await store.find(busy.ref)
    before = store.counters.round_trips

    answer = await busy.move(resumes("0"), ends(), facts=[done("0")])

    assert answer.fate is Fate.COMMITTED
    assert store.counters.round_trips - before > 1


async def test_a_connection_that_ended_while_it_was_idle_is_not_written_over(
    store: PostgresStore, busy: Run, journals: str
) -> None:
    """Nobody has to be told that it is not known what was written; and the other server is asked first."""
    link = store._writer._link
    with psycopg.connect(journals, autocommit=True) as human:
        human.execute("SELECT pg_terminate_backend(%s)", (link.backend_pid,))
    async with asyncio.timeout(PATIENCE_S):
        while link.is_open:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)
    before = store.counters.round_trips

    answer = await busy.move(resumes("0"), ends(), facts=[done("0")])

    assert answer.fate is Fate.COMMITTED
    assert store.counters.round_trips - before > 1


async def test_timers_and_heartbeats_of_a_run_that_is_remembered(store: PostgresStore, busy: Run) -> None:
    """Nothing but the journal, signals, promises and keys has to be asked for."""
    at = await store.now() + dt.timedelta(seconds=5)
    await busy.move(
        resumes("0"), ev.TimerScheduled(promise_id="1", fire_at=at), waits("1"), facts=[done("0")]
    )
    before = store.counters.round_trips

    fired = await busy.move(resumes("1"), task("2", dispatch="inline"), waits("2"), facts=[Fired(path="1")])
    beat = await busy.tell(Beat(path="2", attempt=1, details=b"1"))
    again = await busy.tell(Fired(path="1"))

    assert fired.fate is Fate.COMMITTED
    assert (beat.verdicts, again.verdicts) == ([Verdict.LATE], [Verdict.DUPLICATE])
    assert store.counters.round_trips - before == 3


async def test_only_so_many_runs_are_remembered(journals: str) -> None:
    """The one that was used longest ago is asked for again."""
    store = await PostgresStore.open(journals, config=PostgresConfig(remembered_max=2))
    runs = [Run(store, name) for name in ("a", "b", "c")]
    for run in runs:
        await run.start()
        await run.see()
    costs = []
    for run in reversed(runs):
        before = store.counters.round_trips
        await run.move(task("0", dispatch="inline"), waits("0"))
        costs.append(store.counters.round_trips - before)
    await store.close()

    assert costs == [1, 1, 2]
