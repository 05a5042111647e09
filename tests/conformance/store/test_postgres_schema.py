"""The schema on Postgres: migrations arrive at it, and databases of other releases are told."""

from __future__ import annotations

import asyncio
import re

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from tests.conformance.store.driving import Run
from tidewheel.journal.errors import InvalidRequest
from tidewheel.store.errors import SchemaMismatch, StoreUnavailable
from tidewheel.store.migrations import migrate, schema_status
from tidewheel.store.opening import open_store
from tidewheel.store.postgres.config import PostgresConfig
from tidewheel.store.postgres.store import FUNCTIONS, PostgresStore
from tidewheel.store.records import RunRef
from tidewheel.store.revision import NEWEST
from tidewheel.store.schema import VERSION_TABLE, metadata
from tidewheel.store.statements import statements


def test_migrating_gives_the_schema(journals: str) -> None:
    """What Alembic can compare does not differ, but for the partitions, which functions make."""
    engine = create_engine(make_url(journals).set(drivername="postgresql+psycopg"), poolclass=NullPool)
    options = {"version_table": VERSION_TABLE, "compare_type": True, "include_name": _is_ours}
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=options)

        differences = compare_metadata(context, metadata)

    assert differences == []


def _is_ours(name: str | None, kind: str, _parents: object) -> bool:
    return kind != "table" or not (name or "").startswith("tidewheel_journal_")


@pytest.mark.parametrize("question", ["find", "load", "journal"])
@pytest.mark.parametrize("analyzed", [False, True])
async def test_a_run_is_found_by_its_id_whatever_is_known_of_the_table(
    journals: str, question: str, *, analyzed: bool
) -> None:
    """Not by reading all runs of its namespace, which a plan that was made in the first minutes could do."""
    if analyzed:
        store = await open_store(journals)
        for name in ("a", "b", "c"):
            await Run(store, name).start()
        await store.close()
    asked = {"namespaces": ["default"], "run_ids": ["r"], "afters": [0], "now": 0}
    with psycopg.connect(journals, options=PostgresConfig().server_options(), autocommit=True) as connection:
        if analyzed:
            connection.execute("ANALYZE")
        plan = connection.execute("EXPLAIN " + statements("postgres", "reading")[question], asked)

        lines = [line.strip() for (line,) in plan]

    assert [
        line
        for line in lines
        if "Index Cond: ((namespace = ask.namespace) AND (run_id = ask.run_id))" in line
    ]
    assert not [line for line in lines if "tidewheel_runs_newest" in line]


def test_migrating_tells_what_it_did(fresh_postgres: str) -> None:
    """The second time there is nothing to do."""
    before = schema_status(fresh_postgres)
    applied = [migrate(fresh_postgres), migrate(fresh_postgres)]
    after = schema_status(fresh_postgres)

    assert (before.current, after.current) == (None, NEWEST)
    assert (applied[0][-1], applied[1]) == (NEWEST, [])


async def test_several_that_migrate_at_once_all_succeed(fresh_postgres: str) -> None:
    """One of them makes the schema; the others wait for it."""
    applied = await asyncio.gather(*(asyncio.to_thread(migrate, fresh_postgres) for _ in range(4)))

    assert sorted(map(bool, applied)) == [False, False, False, True]


async def test_opening_does_not_migrate_unless_it_is_told_to(fresh_postgres: str) -> None:
    """Who may change a database is for its owner to say."""
    with pytest.raises(SchemaMismatch, match="tidewheel db migrate"):
        await open_store(fresh_postgres)
    store = await open_store(fresh_postgres, auto_migrate=True)

    await Run(store, "r").start()

    assert schema_status(fresh_postgres).is_current
    await store.close()


async def test_a_process_can_be_started_while_its_fleet_is_upgraded(journals: str) -> None:
    """A newer release's schema will do as long as it has the functions that this one calls."""
    with psycopg.connect(journals, autocommit=True) as connection:
        connection.execute("UPDATE tidewheel_version SET version_num = '9999'")
    store = await PostgresStore.open(journals)

    await Run(store, "r").start()

    assert await store.find(RunRef("default", "r")) is not None
    await store.close()


async def test_a_database_that_has_left_this_release_behind_is_left_alone(journals: str) -> None:
    """Neither is it used nor changed."""
    with psycopg.connect(journals, autocommit=True) as connection:
        connection.execute("UPDATE tidewheel_version SET version_num = '9999'")
        connection.execute("ALTER FUNCTION tidewheel_write_v2 RENAME TO tidewheel_write_v3")

    with pytest.raises(SchemaMismatch, match="newer release"):
        await PostgresStore.open(journals)
    with pytest.raises(SchemaMismatch, match="newer release"):
        await PostgresStore.open(journals, auto_migrate=True)
    with pytest.raises(SchemaMismatch, match="newer release"):
        migrate(journals)


async def test_a_database_that_lacks_a_function_is_told_of(journals: str) -> None:
    """As after an upgrade of the program alone: the tables are right, and migrating makes the rest."""
    with psycopg.connect(journals, autocommit=True) as connection:
        connection.execute("DROP FUNCTION tidewheel_write_known_v2")

    with pytest.raises(SchemaMismatch, match=r"not all functions .* run `tidewheel db migrate`"):
        await PostgresStore.open(journals)
    migrate(journals)
    await (await PostgresStore.open(journals)).close()


def test_the_functions_that_are_called_are_the_ones_that_are_looked_for() -> None:
    """One that is called and not looked for would fail in the middle of an upgrade."""
    texts = [statements("postgres", file) for file in ("appending", "reading", "keeping")]
    called = {
        name for part in texts for sql in part.values() for name in re.findall(r"tidewheel_\w+_v\d+", sql)
    }

    assert called == set(FUNCTIONS)


async def test_a_table_that_is_gone_is_named(journals: str) -> None:
    """Not as a bug, but with what to do."""
    store = await PostgresStore.open(journals)
    with psycopg.connect(journals, autocommit=True) as connection:
        connection.execute("DROP TABLE tidewheel_steps")

    with pytest.raises(SchemaMismatch, match=r"tidewheel_steps.*db migrate"):
        await store.claim_due(limit=1)
    await store.close()


async def test_a_column_of_a_newer_release_does_no_harm(journals: str) -> None:
    """Old workers go on during an upgrade: columns are added first, with defaults."""
    with psycopg.connect(journals, autocommit=True) as connection:
        for table in ("runs", "steps", "timers", "workers"):
            connection.execute(
                f"ALTER TABLE tidewheel_{table} ADD COLUMN more int NOT NULL DEFAULT 7".encode()
            )
    store = await PostgresStore.open(journals)
    run = Run(store, "r")

    await run.start()

    assert (await run.see()).run.run_id == "r"
    await store.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://nobody:secret@127.0.0.1:1/none", "cannot be reached"),
        ("postgresql://nobody:secret@name.invalid/none", "cannot be reached"),
    ],
)
async def test_a_server_that_cannot_be_reached_is_named_without_the_password(url: str, said: str) -> None:
    """The database and the host are in the message, the password is not."""
    with pytest.raises(StoreUnavailable, match=said) as caught:
        await open_store(url)

    assert "'none'" in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_database_that_is_not_there_is_named(fresh_postgres: str) -> None:
    """The message says what Postgres said."""
    url = make_url(fresh_postgres).set(database="nowhere").render_as_string(hide_password=False)

    with pytest.raises(StoreUnavailable, match='"nowhere" does not exist'):
        await open_store(url)


def test_roles_are_for_postgres() -> None:
    """A file has permissions instead."""
    with pytest.raises(InvalidRequest, match="permissions"):
        migrate("sqlite:///a.db", roles=True)
