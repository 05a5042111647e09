"""The schema: migrations arrive at it, opening a file brings it there, and other releases are told."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

import tidewheel.store.migrations
from tidewheel.journal.errors import InvalidRequest
from tidewheel.store.errors import SchemaMismatch
from tidewheel.store.migrations import SchemaStatus, migrate, schema_status
from tidewheel.store.revision import NEWEST
from tidewheel.store.schema import VERSION_TABLE, metadata
from tidewheel.store.sqlite.store import SqliteStore


def execute(file: Path, sql: str) -> list[tuple[Any, ...]]:
    """Execute a statement of the test's own."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        return connection.execute(sql).fetchall()


def declared(file: Path) -> dict[str, str]:
    """Return the text of every table and index in *file*, without white space."""
    rows = execute(file, "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {name: re.sub(r"\s+", "", sql) for name, sql in rows if name != VERSION_TABLE}


def test_migrating_an_empty_file_gives_the_schema(blank: Path) -> None:
    """What Alembic can compare does not differ."""
    engine = create_engine(f"sqlite:///{blank}")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})

        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_migrating_gives_the_same_statements_as_the_schema(blank: Path, tmp_path: Path) -> None:
    """Nor does what it cannot compare: constraints, partial indexes, tables without row ids."""
    made = tmp_path / "made.db"
    engine = create_engine(f"sqlite:///{made}")
    metadata.create_all(engine)
    engine.dispose()

    assert declared(blank) == declared(made)
    assert all("WITHOUTROWID" in sql for sql in declared(blank).values() if sql.startswith("CREATETABLE"))


def test_the_schema_can_be_made_on_postgres() -> None:
    """Nothing in it is SQLite's own: the same tables, with the names of Postgres's types."""
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it so

    made = [str(CreateTable(table).compile(dialect=dialect)) for table in metadata.sorted_tables]
    indexes = [
        str(CreateIndex(index).compile(dialect=dialect))
        for table in metadata.sorted_tables
        for index in table.indexes
    ]

    assert any("run_key BYTEA NOT NULL" in table for table in made)
    assert all("ROWID" not in sql for sql in made)
    assert any("WHERE wake_at IS NOT NULL" in sql for sql in indexes)


def test_the_newest_revision_is_known_without_alembic() -> None:
    """The number that is looked at when a file is opened is that of the last migration."""
    config = Config()
    config.set_main_option("script_location", str(Path(tidewheel.store.migrations.__file__).parent))

    assert ScriptDirectory.from_config(config).get_heads() == [NEWEST]


def test_migrating_tells_what_it_did(tmp_path: Path) -> None:
    """The second time there is nothing to do. A blank and a percent sign in the path are no problem."""
    folder = tmp_path / "my files 100%"
    folder.mkdir()
    url = f"sqlite:///{folder}/a.db".replace("%", "%25")

    before = schema_status(url)
    applied = migrate(url)
    after = schema_status(url)

    assert (before, after) == (
        SchemaStatus(current=None, newest=NEWEST),
        SchemaStatus(current=NEWEST, newest=NEWEST),
    )
    assert (before.is_current, after.is_current) == (False, True)
    assert (applied[-1], migrate(url)) == (NEWEST, [])


def test_asking_for_the_status_makes_no_file(tmp_path: Path) -> None:
    """Looking changes nothing."""
    schema_status(f"sqlite:///{tmp_path}/a.db")

    assert list(tmp_path.iterdir()) == []


def test_memory_has_nothing_to_migrate() -> None:
    """It has no schema."""
    with pytest.raises(InvalidRequest, match="memory"):
        migrate("memory://")


async def test_a_new_file_needs_no_set_up(tmp_path: Path) -> None:
    """Not even where migrating was forbidden: there is nothing in it that could be harmed."""
    store = await SqliteStore.open(tmp_path / "new.db", auto_migrate=False)
    await store.close()

    assert schema_status(f"sqlite:///{tmp_path}/new.db").is_current


async def test_a_file_with_other_tables_is_migrated_only_if_that_is_wanted(tmp_path: Path) -> None:
    """The users' own tables may be in it, and stay as they are."""
    file = tmp_path / "users.db"
    execute(file, "CREATE TABLE events (name TEXT)")

    with pytest.raises(SchemaMismatch, match="tidewheel db migrate"):
        await SqliteStore.open(file, auto_migrate=False)
    untouched = execute(file, "SELECT name FROM sqlite_master")
    store = await SqliteStore.open(file)
    await store.close()

    assert untouched == [("events",)]
    assert execute(file, "SELECT count(*) FROM events") == [(0,)]
    assert schema_status(f"sqlite:///{file}").is_current


async def test_a_file_of_a_newer_release_is_refused(file: Path) -> None:
    """This release could not know what it would break."""
    execute(file, "UPDATE tidewheel_version SET version_num = '0999'")

    with pytest.raises(SchemaMismatch, match="schema 0999, of a newer release"):
        await SqliteStore.open(file)
    with pytest.raises(SchemaMismatch, match="upgrade Tidewheel"):
        migrate(f"sqlite:///{file}")

    assert execute(file, "SELECT version_num FROM tidewheel_version") == [("0999",)]


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """It is one transaction, tables and all."""
    file = tmp_path / "a.db"
    execute(file, "CREATE TABLE tidewheel_workers (mine TEXT)")

    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        migrate(f"sqlite:///{file}")

    assert execute(file, "SELECT name FROM sqlite_master") == [("tidewheel_workers",)]


def test_opening_a_file_that_is_up_to_date_imports_no_sqlalchemy(file: Path) -> None:
    """It takes half a second, which every command would have to wait for."""
    program = (
        "import asyncio, sys; from tidewheel.store.opening import open_store\n"
        f"async def main(): await (await open_store('sqlite:///{file}')).close()\n"
        "asyncio.run(main()); print('sqlalchemy' in sys.modules, 'alembic' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "False"]
