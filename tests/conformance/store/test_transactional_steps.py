"""Transactional steps: the users' rows and the step's result, both or neither."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.conformance.store.driving import NOW, Run, began, done, failed, resumes, signal, task, waits
from tests.conformance.store.inside import Inside
from tidewheel.store.append import Append, Fate, Verdict
from tidewheel.store.protocol import Store

CREATE = "CREATE TABLE accounts (name TEXT PRIMARY KEY, balance INTEGER)"
CREDIT = "INSERT INTO accounts VALUES (?, ?)"


@pytest.fixture
def credit(inside: Inside) -> str:
    """The user's statement, as the store's database spells parameters."""
    return CREDIT.replace("?", inside.placeholder)


@pytest.fixture
async def paying(run: Run) -> Run:
    """A run whose step 1 is being executed; step 0 has made the user's table."""
    await run.move(task("0"), task("1"), waits("0", "1"))
    async with run.store.transaction() as transaction:
        transaction.connection.execute(CREATE)
        await transaction.commit(Append(run=run.ref, facts=(done("0"),)))
    await run.tell(began("1"))
    await run.see()
    return run


async def balances(store: Store) -> list[Any]:
    """Read the user's table."""
    async with store.transaction() as transaction:
        rows: list[Any] = transaction.connection.execute("SELECT name, balance FROM accounts").fetchall()
        return rows


async def test_the_users_rows_are_committed_with_the_result(paying: Run, credit: str) -> None:
    """One commit has both, and what the code asks for next."""
    moves = paying.moves(resumes("1"), task("2"), waits("2"))

    async with paying.store.transaction() as transaction:
        transaction.connection.execute(credit, ("alice", 5))
        answer = await transaction.commit(Append(run=paying.ref, facts=(done("1"),), moves=moves))

    assert (answer.verdicts, answer.fate) == ([Verdict.WRITTEN], Fate.COMMITTED)
    assert await balances(paying.store) == [("alice", 5)]
    assert not await paying.has_step("1")


async def test_an_error_in_the_users_code_rolls_everything_back(paying: Run, credit: str) -> None:
    """The next attempt finds the tables as they were."""

    async def step() -> None:
        async with paying.store.transaction() as transaction:
            transaction.connection.execute(credit, ("alice", 5))
            raise ValueError("no such account")

    with pytest.raises(ValueError, match="no such account"):
        await step()

    assert await balances(paying.store) == []
    assert await paying.has_step("1")


async def test_a_zombies_rows_are_rolled_back_with_its_result(paying: Run, credit: str) -> None:
    """An attempt that was given up can neither report nor leave anything behind."""
    await paying.tell(failed("1", retry_at=NOW, overdue=True))
    await paying.tell(began("1", attempt=2, owner="worker-2"))
    before = await paying.story()

    async with paying.store.transaction() as transaction:
        transaction.connection.execute(credit, ("alice", 5))
        answer = await transaction.commit(Append(run=paying.ref, facts=(done("1", attempt=1),)))

    assert (answer.verdicts, answer.hints) == ([Verdict.LATE], [])
    assert await balances(paying.store) == []
    assert await paying.story() == before


async def test_of_several_facts_all_are_written_or_none(paying: Run, credit: str) -> None:
    """A fact before the refused one is rolled back with it."""
    before = await paying.journal()

    async with paying.store.transaction() as transaction:
        transaction.connection.execute(credit, ("alice", 5))
        facts = (signal("new"), done("1", attempt=7))
        answer = await transaction.commit(Append(run=paying.ref, facts=facts))

    assert answer.verdicts[1] is Verdict.LATE
    assert answer.hints == []
    assert await paying.journal() == before
    assert (await paying.record()).last_seq == len(before) - 1
    assert await balances(paying.store) == []
    assert (await paying.tell(signal("new"))).verdicts == [Verdict.WRITTEN]


async def test_a_result_is_kept_when_only_the_moves_are_stale(paying: Run, credit: str) -> None:
    """As for any other step: a finished result is never thrown away."""
    moves = paying.moves(resumes("1"), waits(), expected=b"other")

    async with paying.store.transaction() as transaction:
        transaction.connection.execute(credit, ("alice", 5))
        answer = await transaction.commit(Append(run=paying.ref, facts=(done("1"),), moves=moves))

    assert (answer.verdicts, answer.fate) == ([Verdict.WRITTEN], Fate.STALE)
    assert (await paying.record()).wake_at is not None
    assert await balances(paying.store) == [("alice", 5)]


async def test_leaving_without_a_commit_rolls_back(paying: Run, credit: str) -> None:
    """Nothing is committed that nobody asked to commit."""
    async with paying.store.transaction() as transaction:
        transaction.connection.execute(credit, ("alice", 5))
        transaction.connection.cursor().executemany(credit, [("bob", 6)])
        transaction.connection.cursor().execute(credit, ("carol", 7))

    assert await balances(paying.store) == []


async def test_a_step_may_do_nothing(paying: Run) -> None:
    """A transactional step without statements completes like any other."""
    async with paying.store.transaction() as transaction:
        answer = await transaction.commit(Append(run=paying.ref, facts=(done("1"),)))

    assert answer.verdicts == [Verdict.WRITTEN]


async def test_a_step_in_a_thread_has_the_same_connection(paying: Run, credit: str) -> None:
    """Sync user code is executed in a thread."""
    async with paying.store.transaction() as transaction:
        await asyncio.to_thread(transaction.connection.execute, credit, ("alice", 5))
        await transaction.commit(Append(run=paying.ref, facts=(done("1"),)))

    assert await balances(paying.store) == [("alice", 5)]


async def test_the_store_works_while_a_step_has_not_come_to_the_database(paying: Run, credit: str) -> None:
    """The lock is taken at the first statement: before that nobody waits."""
    async with paying.store.transaction() as transaction:
        answer = await asyncio.wait_for(paying.tell(signal()), 2)
        transaction.connection.execute(credit, ("alice", 5))
        await transaction.commit(Append(run=paying.ref, facts=(done("1"),)))

    assert answer.verdicts == [Verdict.WRITTEN]
    assert await balances(paying.store) == [("alice", 5)]
