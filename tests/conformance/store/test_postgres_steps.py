"""Transactional steps on Postgres: what their code gets, and what it may not do."""

from __future__ import annotations

import asyncio
import os
import signal as signals
from collections.abc import AsyncIterator

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.conformance.store.driving import Run, began, done, signal, task, waits
from tests.servers.postgres import PrivatePostgres
from tidewheel.journal.errors import InvalidRequest
from tidewheel.store.append import Append, Verdict
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.store.migrations import migrate
from tidewheel.store.postgres.config import PostgresConfig
from tidewheel.store.postgres.store import PostgresStore

CREDIT = "INSERT INTO accounts VALUES (%s)"


@pytest.fixture
async def paying(journals: str) -> AsyncIterator[Run]:
    """A run whose step 0 is being executed, in a database with a table of the user's."""
    with psycopg.connect(journals, autocommit=True) as connection:
        connection.execute("CREATE TABLE accounts (name text)")
    store = await PostgresStore.open(journals, config=PostgresConfig(lock_timeout_s=0.3))
    run = Run(store, "r")
    await run.start()
    await run.move(task("0"), waits("0"))
    await run.tell(began("0"))
    yield run
    await store.close()


def names(url: str) -> list[str]:
    """Read the user's table."""
    with psycopg.connect(url) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM accounts").fetchall()]


async def test_an_async_function_awaits_its_statements(paying: Run, journals: str) -> None:
    """It has a connection that does not block the event loop; the commit has both."""
    async with paying.store.transaction(is_async=True) as transaction:
        await transaction.connection.execute(CREDIT, ("alice",))
        answer = await transaction.commit(Append(run=paying.ref, facts=(done("0"),)))

    assert answer.verdicts == [Verdict.WRITTEN]
    assert names(journals) == ["alice"]


@pytest.mark.parametrize("verb", ["commit", "rollback"])
async def test_the_users_code_neither_commits_nor_rolls_back(paying: Run, journals: str, verb: str) -> None:
    """It is told so, and the step can still end well."""
    async with paying.store.transaction() as transaction:
        transaction.connection.execute(CREDIT, ("alice",))
        with pytest.raises(InvalidRequest, match="neither commit nor roll back"):
            getattr(transaction.connection, verb)()
        await transaction.commit(Append(run=paying.ref, facts=(done("0"),)))

    assert names(journals) == ["alice"]


async def test_a_commit_as_a_statement_is_found_out(paying: Run) -> None:
    """The result is not journaled as if it had committed with the rows."""
    async with paying.store.transaction() as transaction:
        transaction.connection.execute(CREDIT, ("alice",))
        transaction.connection.execute("COMMIT")
        with pytest.raises(InvalidRequest, match="ended the transaction itself"):
            await transaction.commit(Append(run=paying.ref, facts=(done("0"),)))

    assert await paying.has_step("0")


async def test_savepoints_are_the_users_own(paying: Run, journals: str) -> None:
    """A part of a step can be rolled back."""
    async with paying.store.transaction() as transaction:
        connection = transaction.connection
        connection.execute(CREDIT, ("alice",))
        connection.execute("SAVEPOINT mine")
        connection.execute(CREDIT, ("bob",))
        connection.execute("ROLLBACK TO mine")
        await transaction.commit(Append(run=paying.ref, facts=(done("0"),)))

    assert names(journals) == ["alice"]


async def test_a_step_does_not_hold_up_its_run(paying: Run) -> None:
    """The run is locked when the user's statements are done, not before."""
    async with paying.store.transaction() as transaction:
        transaction.connection.execute(CREDIT, ("alice",))
        answer = await asyncio.wait_for(paying.tell(signal()), 5)
        await transaction.commit(Append(run=paying.ref, facts=(done("0"),)))

    assert answer.verdicts == [Verdict.WRITTEN]


async def test_a_run_that_is_held_fails_the_step_after_a_bounded_wait(paying: Run, journals: str) -> None:
    """Neither its rows nor its result are written."""
    with psycopg.connect(journals) as person:
        person.execute("SELECT 1 FROM tidewheel_runs FOR UPDATE")

        async with paying.store.transaction() as transaction:
            transaction.connection.execute(CREDIT, ("alice",))
            with pytest.raises(StoreUnavailable, match="waited too long for a lock"):
                await asyncio.wait_for(transaction.commit(Append(run=paying.ref, facts=(done("0"),))), 20)

    assert names(journals) == []
    assert await paying.has_step("0")


async def test_code_that_still_runs_when_its_step_ends_is_told(paying: Run, journals: str) -> None:
    """A statement in a thread that outlasts the step's time limit ends with an error, and changes nothing."""
    async with paying.store.transaction() as transaction:
        transaction.connection.execute(CREDIT, ("alice",))
        sleeping = asyncio.create_task(
            asyncio.to_thread(transaction.connection.execute, "SELECT pg_sleep(60)")
        )
        await asyncio.sleep(0.1)

    with pytest.raises(psycopg.OperationalError):
        await asyncio.wait_for(sleeping, 10)
    assert names(journals) == []


async def test_a_backend_that_dies_before_the_commit_writes_nothing(paying: Run, journals: str) -> None:
    """Its transaction is gone, and the caller knows."""
    async with paying.store.transaction() as transaction:
        transaction.connection.execute(CREDIT, ("alice",))
        with psycopg.connect(journals, autocommit=True) as person:
            person.execute("SELECT pg_terminate_backend(%s)", (transaction.connection.info.backend_pid,))
        with pytest.raises((StoreUnavailable, CommitUnknown)):
            await transaction.commit(Append(run=paying.ref, facts=(done("0"),)))

    assert names(journals) == []


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_users_rows_look_as_the_user_likes(paying: Run, journals: str, is_async: bool) -> None:
    """A connection's row factory is the user's; the step ends well whatever it is."""
    async with paying.store.transaction(is_async=is_async) as transaction:
        transaction.connection.row_factory = dict_row
        credited = transaction.connection.execute(CREDIT, ("alice",))
        if is_async:
            await credited
        answer = await transaction.commit(Append(run=paying.ref, facts=(done("0"),)))

    assert answer.verdicts == [Verdict.WRITTEN]
    assert names(journals) == ["alice"]


@pytest.mark.parametrize("setting", ["search_path = tenant", "ROLE pg_monitor", "bytea_output = escape"])
async def test_what_the_users_code_sets_does_not_concern_the_journal(
    paying: Run, journals: str, setting: str
) -> None:
    """A tenant's schema or role is for the user's statements; the result is written as ever."""
    with psycopg.connect(journals, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA tenant")

    async with paying.store.transaction() as transaction:
        transaction.connection.execute(CREDIT, ("alice",))
        transaction.connection.execute(f"SET LOCAL {setting}")
        answer = await transaction.commit(Append(run=paying.ref, facts=(done("0"),)))

    assert answer.verdicts == [Verdict.WRITTEN]
    assert names(journals) == ["alice"]


async def test_a_server_that_stops_answering_ends_the_step(own_postgres: PrivatePostgres) -> None:
    """Nothing of the step was written, and its worker hears so after a bounded wait."""
    migrate(own_postgres.url)
    store = await PostgresStore.open(own_postgres.url, config=PostgresConfig(exchange_timeout_s=0.5))
    run = Run(store, "r")
    await run.start()
    await run.move(task("0"), waits("0"))

    async with store.transaction() as transaction:
        backend = transaction.connection.info.backend_pid
        os.kill(backend, signals.SIGSTOP)
        try:
            with pytest.raises(StoreUnavailable, match="nothing was written"):
                await asyncio.wait_for(transaction.commit(Append(run=run.ref, facts=(done("0"),))), 20)
        finally:
            os.kill(backend, signals.SIGCONT)

    assert await run.has_step("0")
    await store.close()
