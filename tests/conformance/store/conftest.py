"""The stores under test: every rule is asked of each of them."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.store.driving import Clock, Run
from tests.conformance.store.inside import Inside, InsideMemory, InsidePostgres, InsideSqlite
from tidewheel.store.memory import MemoryStore
from tidewheel.store.postgres.config import PostgresConfig
from tidewheel.store.postgres.store import PostgresStore
from tidewheel.store.protocol import Store
from tidewheel.store.sqlite.connection import Database
from tidewheel.store.sqlite.migrating import migrate_file
from tidewheel.store.sqlite.store import SqliteStore


@pytest.fixture(scope="session")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the schema and nothing in it: migrating one takes longer than most tests."""
    path = tmp_path_factory.mktemp("blank") / "blank.db"
    Database(path).create()
    migrate_file(path)
    return path


@pytest.fixture
def file(blank: Path, tmp_path: Path) -> Path:
    """The file of a SQLite store, for tests that open it more than once."""
    return Path(shutil.copy(blank, tmp_path / "store.db"))


@pytest.fixture
def clock() -> Clock:
    """The store's clock, which moves only when it is told to."""
    return Clock()


@pytest.fixture(params=["memory", "sqlite", "postgres", "postgres-asking"])
async def inside(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[Inside]:
    """The store under test, with a way to look at its rows.

    Postgres comes twice: as it is, and remembering nothing, so that every append asks first.
    """
    if request.param == "memory":
        memory = MemoryStore(clock=clock)
        yield InsideMemory(memory)
        await memory.close()
        return
    if request.param.startswith("postgres"):
        url: str = request.getfixturevalue("journals")
        config = PostgresConfig(remembered_max=0) if request.param == "postgres-asking" else None
        postgres = await PostgresStore.open(url, clock=clock, config=config)
        yield InsidePostgres(postgres, url)
        await postgres.close()
        return
    path: Path = request.getfixturevalue("file")
    sqlite = await SqliteStore.open(path, clock=clock)
    yield InsideSqlite(sqlite, path)
    await sqlite.close()


@pytest.fixture
def store(inside: Inside) -> Store:
    """The store under test."""
    return inside.store


@pytest.fixture
async def run(store: Store) -> Run:
    """A run that was started, and whose code has seen that."""
    run = Run(store, "r")
    await run.start()
    return run
