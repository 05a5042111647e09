"""Processes and files for the tests of this tier."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.faults.nursery import Nursery, nursery_in
from tests.faults.place import Place, blank_in

#: A killed process loses nothing that it wrote, on a disk or in memory; memory is faster.
_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the test's own, gone when it is over."""
    made = Path(tempfile.mkdtemp(prefix="tidewheel-", dir=_MEMORY if _MEMORY.is_dir() else None))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
async def nursery(folder: Path) -> AsyncIterator[Nursery]:
    """Starts processes, which end with the test."""
    async with nursery_in(folder) as made:
        yield made


@pytest.fixture
async def blank(folder: Path) -> Path:
    """A folder with the files of a store and a broker that are empty."""
    return await blank_in(folder / "blank")


@pytest.fixture
async def place(folder: Path, blank: Path, nursery: Nursery) -> AsyncIterator[Place]:
    """A store and a broker in files, with a client of this process's own, and workers in others."""
    shutil.copytree(blank, folder / "place")
    async with Place(folder / "place", nursery) as made:
        yield made
