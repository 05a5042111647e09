"""Servers and folders for the tests of this tier. Whatever is killed here is private."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.postgres import PrivatePostgres

#: A killed process loses nothing that it wrote, on a disk or in memory; memory is faster.
_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the test's own, gone when it is over."""
    made = Path(tempfile.mkdtemp(prefix="tidewheel-", dir=_MEMORY if _MEMORY.is_dir() else None))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PrivatePostgres]:
    """A Postgres server that the tests of one module share."""
    with PrivatePostgres() as server:
        yield server
