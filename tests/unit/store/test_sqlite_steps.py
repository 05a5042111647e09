"""Transactional steps on SQLite: when the lock is taken, and what the user's code may not do."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.store.driving import Run, done, signal, task
from tidewheel.journal.errors import InvalidRequest
from tidewheel.store.append import Append, Verdict
from tidewheel.store.errors import StoreUnavailable
from tidewheel.store.sqlite.store import SqliteStore

CREATE = "CREATE TABLE accounts (name TEXT PRIMARY KEY, balance INTEGER)"


@pytest.fixture
async def run(store: SqliteStore) -> Run:
    """A run with steps to execute, and a table of the user's own."""
    run = Run(store, "r")
    await run.start()
    await run.move(task("0"), task("1"), task("2"))
    async with store.transaction() as transaction:
        transaction.connection.execute(CREATE)
        transaction.connection.execute("INSERT INTO accounts VALUES ('alice', 0)")
        await transaction.commit(Append(run=run.ref, facts=(done("0"),)))
    return run


async def test_what_a_step_has_read_nobody_changes(run: Run, store: SqliteStore, file: Path) -> None:
    """The first statement takes the lock, though it only reads: writing after it always works."""
    other = await SqliteStore.open(file)

    async with store.transaction() as transaction:
        (balance,) = transaction.connection.execute("SELECT balance FROM accounts").fetchone()
        waiting = asyncio.create_task(other.append([Append(run=run.ref, facts=(signal(),))]))
        await asyncio.sleep(0.05)
        was_waiting = not waiting.done()
        transaction.connection.execute("UPDATE accounts SET balance = ?", (balance + 1,))
        answer = await transaction.commit(Append(run=run.ref, facts=(done("1"),)))

    assert was_waiting
    assert answer.verdicts == [Verdict.WRITTEN]
    assert (await waiting)[0].verdicts == [Verdict.WRITTEN]
    assert (await run.story())[-3:] == ["InvokeStarted", "InvokeCompleted", "SignalDelivered"]
    await other.close()


async def test_a_step_that_holds_the_lock_too_long_is_named(run: Run, store: SqliteStore) -> None:
    """Others are told after their time; the step itself is not disturbed."""
    async with store.transaction() as transaction:
        transaction.connection.execute("SELECT 1")
        with pytest.raises(StoreUnavailable, match="transactional step"):
            await run.tell(signal())
        answer = await transaction.commit(Append(run=run.ref, facts=(done("1"),)))

    assert answer.verdicts == [Verdict.WRITTEN]
    assert (await run.tell(signal())).verdicts == [Verdict.WRITTEN]


async def test_a_step_waits_for_the_lock_and_is_told(run: Run, store: SqliteStore, file: Path) -> None:
    """Its first statement finds the file locked: the attempt fails as the store's fault, not the code's."""
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    async with store.transaction() as transaction:
        with pytest.raises(StoreUnavailable, match="is locked"):
            await asyncio.to_thread(transaction.connection.execute, "SELECT 1")

    other.close()


async def test_steps_of_one_loop_take_turns(run: Run, store: SqliteStore) -> None:
    """Two that both want the lock would block the loop, and so each other."""

    async def step(path: str) -> Verdict:
        async with store.transaction() as transaction:
            transaction.connection.execute("UPDATE accounts SET balance = balance + 1")
            await asyncio.sleep(0.02)
            answer = await transaction.commit(Append(run=run.ref, facts=(done(path),)))
        return answer.verdicts[0]

    verdicts = tuple(await asyncio.gather(step("1"), step("2")))

    assert verdicts == (Verdict.WRITTEN, Verdict.WRITTEN)


@pytest.mark.parametrize(
    "statement",
    [
        "COMMIT",
        "ROLLBACK",
        "BEGIN",
        "DELETE FROM tidewheel_journal",
        "UPDATE tidewheel_runs SET last_seq = 99",
        "INSERT INTO tidewheel_facts_seen VALUES (x'00', 'a')",
        "DROP TABLE tidewheel_outbox",
        "ALTER TABLE tidewheel_workers ADD COLUMN mine TEXT",
    ],
)
async def test_the_users_code_cannot_end_the_transaction_or_change_a_journal(
    run: Run, store: SqliteStore, statement: str
) -> None:
    """The step's result decides, and the store's tables are the store's."""
    async with store.transaction() as transaction:
        transaction.connection.execute("UPDATE accounts SET balance = 5")
        with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|prohibited"):
            transaction.connection.execute(statement)
        answer = await transaction.commit(Append(run=run.ref, facts=(done("1"),)))

    assert answer.verdicts == [Verdict.WRITTEN]
    async with store.transaction() as transaction:
        assert transaction.connection.execute("SELECT balance FROM accounts").fetchall() == [(5,)]


@pytest.mark.parametrize(
    "call",
    [
        lambda connection: connection.commit(),
        lambda connection: connection.rollback(),
        lambda connection: connection.executescript("SELECT 1"),
        lambda connection: connection.cursor().executescript("SELECT 1"),
    ],
    ids=["commit", "rollback", "script", "script of a cursor"],
)
async def test_what_would_commit_is_refused_with_the_reason(run: Run, store: SqliteStore, call: Any) -> None:
    """Python's own ways to commit, said or unsaid."""
    async with store.transaction() as transaction:
        transaction.connection.execute("UPDATE accounts SET balance = 5")
        with pytest.raises(InvalidRequest, match="transactional step"):
            call(transaction.connection)

    async with store.transaction() as transaction:
        assert transaction.connection.execute("SELECT balance FROM accounts").fetchall() == [(0,)]


async def test_a_with_block_of_the_users_commits_nothing(run: Run, store: SqliteStore) -> None:
    """``with connection`` is how Python's documentation writes; here the step is the block."""
    async with store.transaction() as transaction:
        with transaction.connection as connection:
            connection.execute("UPDATE accounts SET balance = 5")

    async with store.transaction() as transaction:
        assert transaction.connection.execute("SELECT balance FROM accounts").fetchall() == [(0,)]


async def test_savepoints_are_the_users_own(run: Run, store: SqliteStore) -> None:
    """Part of the work can be undone without ending the transaction."""
    async with store.transaction() as transaction:
        connection = transaction.connection
        connection.execute("SAVEPOINT mine")
        connection.execute("UPDATE accounts SET balance = 5")
        connection.execute("ROLLBACK TO mine")
        connection.execute("UPDATE accounts SET balance = balance + 1")
        await transaction.commit(Append(run=run.ref, facts=(done("1"),)))

    async with store.transaction() as transaction:
        assert transaction.connection.execute("SELECT balance FROM accounts").fetchall() == [(1,)]


async def test_code_that_runs_on_after_its_step_can_do_nothing(run: Run, store: SqliteStore) -> None:
    """A thread that was given up still has the connection: it is closed."""
    async with store.transaction() as transaction:
        connection = transaction.connection
        connection.execute("UPDATE accounts SET balance = 5")

    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("UPDATE accounts SET balance = 6")
    assert (await run.tell(signal())).verdicts == [Verdict.WRITTEN]


async def test_a_step_that_is_cancelled_lets_go_of_the_lock(run: Run, store: SqliteStore) -> None:
    """However it ends, the next writer does not wait for it."""
    began = asyncio.Event()

    async def step() -> None:
        async with store.transaction() as transaction:
            transaction.connection.execute("UPDATE accounts SET balance = 5")
            began.set()
            await asyncio.sleep(60)

    running = asyncio.create_task(step())
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert (await run.tell(signal())).verdicts == [Verdict.WRITTEN]


async def test_a_store_that_is_closed_under_a_step_lets_go_of_the_lock(
    run: Run, store: SqliteStore, file: Path
) -> None:
    """The step is rolled back; another process can write at once."""
    async with store.transaction() as transaction:
        transaction.connection.execute("UPDATE accounts SET balance = 5")
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await transaction.commit(Append(run=run.ref, facts=(done("1"),)))

    other = await SqliteStore.open(file, busy_timeout_s=0.2)
    run.store = other
    assert (await run.tell(done("1"))).verdicts == [Verdict.WRITTEN]
    await other.close()


async def test_a_steps_commit_is_noticed(run: Run, store: SqliteStore) -> None:
    """Like any other."""
    await store.changed(0.05)
    waiting = asyncio.create_task(store.changed(30))
    await asyncio.sleep(0.03)

    async with store.transaction() as transaction:
        await transaction.commit(Append(run=run.ref, facts=(done("1"),)))

    await asyncio.wait_for(waiting, 5)
