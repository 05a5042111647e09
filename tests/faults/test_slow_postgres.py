"""A Postgres that is slow to write what happens to steps: starts may be late, results are found out (32)."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import psycopg
import pytest

from tests.faults.place import eventually
from tests.faults.till import GIVEN_UP, THRICE, WAITS, Till, steps_of, working
from tests.servers.postgres import PrivatePostgres
from tidewheel import Retry
from tidewheel.journal import events as ev
from tidewheel.store.migrations import migrate
from tidewheel.store.postgres.config import PostgresConfig
from tidewheel.store.postgres.store import PostgresStore
from tidewheel.workers.write_budget import StateStoreConfig

SHORT = StateStoreConfig(write_latency_budget_ms=200)
ASKS_AGAIN = "a commit's reply was lost, asking again"


def at(url: str) -> Callable[[], Awaitable[PostgresStore]]:
    """Return what opens the store at *url*; what must give up there does so soon."""
    return partial(PostgresStore.open, url, config=PostgresConfig(lock_timeout_s=0.3, exchange_timeout_s=1.0))


@contextlib.contextmanager
def runs_held(url: str) -> Iterator[None]:
    """Hold the rows of all runs, as a person with an open transaction does."""
    with psycopg.connect(url) as connection:
        connection.execute("SELECT 1 FROM tidewheel_runs FOR UPDATE")
        yield
        connection.rollback()


async def test_a_body_begins_and_ends_while_its_start_cannot_be_written(
    journals: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The start comes with the result, before it: in the journal, and for those who hear of public events."""
    till = Till(THRICE, inline=True)
    async with working(at(journals), till, StateStoreConfig(write_latency_budget_ms=60_000)) as client:
        with contextlib.ExitStack() as held:
            till.at_begin = lambda: held.enter_context(runs_held(journals))
            handle = await till.begun(client)
            await eventually(lambda: WAITS in caplog.text, "the start that cannot be written")
            till.opened.set()
            await eventually(lambda: till.ended, "the body's end")
            ended_with = await steps_of(handle)
        result = await handle.result(timeout=30)
        steps, events = await steps_of(handle), await handle.events()

    assert ended_with == ["InvokeScheduled"]
    assert (result, till.attempts) == ("paid 7", [1])
    assert steps == ["InvokeScheduled", "InvokeStarted", "InvokeCompleted"]
    assert [event.event_type for event in events] == [
        "RunStarted", "StepStarted", "StepCompleted", "RunCompleted",
    ]  # fmt: skip


async def test_a_start_is_written_before_its_body_where_nothing_may_fail_open(journals: str) -> None:
    """Whoever looks at the journal sees what is being executed."""
    till = Till(THRICE, inline=True)
    async with working(at(journals), till, StateStoreConfig(fail_open_for_event_class=("none",))) as client:
        handle = await till.begun(client)
        begun_with = await steps_of(handle)
        till.opened.set()
        result = await handle.result(timeout=30)

    assert begun_with == ["InvokeScheduled", "InvokeStarted"]
    assert (result, till.attempts) == ("paid 7", [1])


@pytest.mark.parametrize("inline", [True, False])
async def test_a_result_that_was_not_written_in_time_fails_its_attempt(
    journals: str, caplog: pytest.LogCaptureFixture, inline: bool
) -> None:
    """The store says that nothing was written; the step is executed again, and comes to one result."""
    till = Till(THRICE, inline=inline)
    async with working(at(journals), till, SHORT) as client:
        handle = await till.begun(client)

        with runs_held(journals):
            till.opened.set()
            await eventually(lambda: GIVEN_UP in caplog.text, "the end of the worker's patience")
        result = await handle.result(timeout=30)
        steps, journal = await steps_of(handle), await handle.journal()

    assert (result, till.attempts) == ("paid 7", [1, 2])
    assert steps == ["InvokeScheduled", "InvokeStarted", "InvokeRetrying", "InvokeStarted", "InvokeCompleted"]
    (error,) = [entry.event.error for entry in journal if isinstance(entry.event, ev.InvokeRetrying)]
    assert error.type == "WriteBudgetExceeded"
    assert "the budget is 0.2 s" in error.message


async def test_a_step_that_may_be_executed_once_fails_with_its_write(
    journals: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not executed again, and the workflow is told what happened."""
    till = Till(Retry(max_attempts=1), inline=True)
    async with working(at(journals), till, SHORT) as client:
        handle = await till.begun(client)

        with runs_held(journals):
            till.opened.set()
            await eventually(lambda: GIVEN_UP in caplog.text, "the end of the worker's patience")
        result = await handle.result(timeout=30)
        events = await handle.events()

    assert (result, till.attempts) == ("WriteBudgetExceeded after 1", [1])
    assert [event.event_type for event in events] == [
        "RunStarted", "StepStarted", "StepFailed", "RunCompleted",
    ]  # fmt: skip


@pytest.mark.parametrize("inline", [True, False])
async def test_a_result_whose_commit_hangs_is_found_to_be_there(
    own_postgres: PrivatePostgres, caplog: pytest.LogCaptureFixture, inline: bool
) -> None:
    """A commit that waits for a standby is there when it is given up on: the step has succeeded, once."""
    url = own_postgres.create_database("slow")
    migrate(url)
    till = Till(Retry(max_attempts=1), inline=inline)
    async with working(at(url), till, SHORT) as client:
        handle = await till.begun(client)

        _wait_for_standby(own_postgres, "ghost")
        try:
            till.opened.set()
            await eventually(lambda: ASKS_AGAIN in caplog.text, "the commit's end")
        finally:
            _wait_for_standby(own_postgres, "")
        result = await handle.result(timeout=30)
        steps = await steps_of(handle)

    assert (result, till.attempts) == ("paid 7", [1])
    assert steps == ["InvokeScheduled", "InvokeStarted", "InvokeCompleted"]


def _wait_for_standby(server: PrivatePostgres, name: str) -> None:
    """Let commits wait for a standby called *name*, or for none, from now on."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = local")
        connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'".encode())
        connection.execute("SELECT pg_reload_conf()")
        while connection.execute("SHOW synchronous_standby_names").fetchone() != (name,):
            connection.execute("SELECT pg_sleep(0.01)")
