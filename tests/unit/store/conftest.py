"""Files with the schema of this release, made once and copied."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tidewheel.store.migrations import migrate
from tidewheel.store.sqlite.store import SqliteStore


@pytest.fixture(scope="session")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the schema and nothing in it."""
    path = tmp_path_factory.mktemp("blank") / "blank.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def file(blank: Path, tmp_path: Path) -> Path:
    """A file of the test's own."""
    return Path(shutil.copy(blank, tmp_path / "store.db"))


@pytest.fixture
async def store(file: Path) -> AsyncIterator[SqliteStore]:
    """A store that does not wait long for a lock."""
    store = await SqliteStore.open(file, busy_timeout_s=0.2)
    yield store
    await store.close()
