"""The thread that writes: calls share transactions, and each gets its own answer."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from tests.conformance.store.driving import Run, ends, signal, task
from tidewheel.store.append import Fate, Verdict
from tidewheel.store.sqlite.store import SqliteStore
from tidewheel.store.sqlite.writer import GROUP_MAX


class Gate:
    """Keeps the writer busy, so that calls queue up behind it."""

    def __init__(self, store: SqliteStore) -> None:
        self._is_open = threading.Event()
        began = threading.Event()

        def wait(_: sqlite3.Connection) -> None:
            began.set()
            assert self._is_open.wait(10)

        self._future: Future[Any] = store._writer.do(wait)
        assert began.wait(10)

    def open(self) -> None:
        """Let the writer go on."""
        self._is_open.set()


async def queued(*calls: Any) -> list[asyncio.Task[Any]]:
    """Begin *calls*, which then wait for the writer."""
    tasks = [asyncio.create_task(call) for call in calls]
    await asyncio.sleep(0)
    return tasks


async def test_calls_that_wait_together_share_a_transaction(store: SqliteStore) -> None:
    """One sync to the disk for all of them, in the order in which they came."""
    run = Run(store, "r")
    await run.start()
    commits = store.counters.commits
    gate = Gate(store)
    calls = await queued(*[run.tell(signal(str(number), payload=number)) for number in range(10)])

    gate.open()
    answers = await asyncio.gather(*calls)

    assert [answer.last_seq for answer in answers] == list(range(1, 11))
    assert store.counters.commits - commits == 1


async def test_a_group_is_bounded(store: SqliteStore) -> None:
    """However many wait, a transaction has so many of them."""
    run = Run(store, "r")
    await run.start()
    commits = store.counters.commits
    gate = Gate(store)
    calls = await queued(*[run.tell(signal(str(number))) for number in range(GROUP_MAX + 1)])

    gate.open()
    await asyncio.gather(*calls)

    assert store.counters.commits - commits == 2


async def test_a_call_that_fails_does_not_fail_its_neighbours(store: SqliteStore) -> None:
    """The group is rolled back and done one by one: nothing is lost or written twice."""
    run = Run(store, "r")
    await run.start()
    gate = Gate(store)

    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE tidewheel_runs SET last_seq = -1")

    calls = await queued(run.tell(signal("a")), store._write(broken), run.tell(signal("b")))
    gate.open()
    with pytest.raises(sqlite3.IntegrityError):
        await calls[1]

    assert [(await calls[place]).verdicts for place in (0, 2)] == [[Verdict.WRITTEN]] * 2
    assert await run.story() == ["ExecutionStarted", "SignalDelivered", "SignalDelivered"]


async def test_a_batch_is_written_whole_or_not_at_all(store: SqliteStore) -> None:
    """A mistake in its last append takes back the first."""
    run = Run(store, "r")
    await run.start()

    with pytest.raises(AssertionError, match="InvokeScheduled while"):
        await run.ask(facts=(signal("a"),), moves=run.moves(ends(), task()))

    assert await run.story() == ["ExecutionStarted"]
    assert (await run.move(task())).fate is Fate.COMMITTED


async def test_a_commit_that_fails_is_rolled_back(store: SqliteStore) -> None:
    """A constraint that is looked at only when committing: the next call finds no open transaction."""
    run = Run(store, "r")
    await run.start()
    connection = store._writer._held.get()
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
    connection.execute("CREATE TABLE child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")

    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        await store._write(lambda own: own.execute("INSERT INTO child VALUES (1)").rowcount)
    await run.tell(signal("a"))

    assert connection.execute("SELECT count(*) FROM child").fetchone() == (0,)
    assert await run.story() == ["ExecutionStarted", "SignalDelivered"]


async def test_a_call_that_is_cancelled_before_its_turn_is_not_done(store: SqliteStore) -> None:
    """Its neighbours are."""
    run = Run(store, "r")
    await run.start()
    gate = Gate(store)
    first, second = await queued(run.tell(signal("a", name="no")), run.tell(signal("b", name="yes")))

    first.cancel()
    await asyncio.sleep(0)
    gate.open()
    await second

    last = (await run.journal())[-1].event
    assert (await run.story()).count("SignalDelivered") == 1
    assert getattr(last, "signal_name", None) == "yes"


async def test_what_was_asked_for_before_closing_is_done(store: SqliteStore) -> None:
    """Closing waits for it."""
    run = Run(store, "r")
    await run.start()
    gate = Gate(store)
    (call,) = await queued(run.tell(signal("a")))

    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0.02)
    gate.open()

    assert (await call).verdicts == [Verdict.WRITTEN]
    await closing


async def test_nothing_due_takes_no_lock(store: SqliteStore) -> None:
    """A keeper that looks often does not disturb those who write."""
    run = Run(store, "r")
    await run.start()
    gate = Gate(store)

    due = await asyncio.wait_for(store.claim_due(limit=10), 5)

    gate.open()
    assert due.hints == []
