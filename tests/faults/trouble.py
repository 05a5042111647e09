"""Troubles of files, made and mended by a test while worker processes use them."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from tidewheel.store.sqlite.connection import Held

#: Files whose presence tells worker processes that the disk is full, or that nothing may be written.
FULL, READ_ONLY = "disk-is-full", "store-is-read-only"
_PAGES_MAX = 1 << 30


def install(folder: Path) -> None:
    """Let this process's connections that write meet the troubles that the test makes in *folder*."""
    get = Held.get

    def troubled(self: Held) -> sqlite3.Connection:
        connection = get(self)
        if not self._reads_only:
            # SQLite takes the size that the file has for the least: it cannot grow any more.
            pages_max = 1 if (folder / FULL).exists() else _PAGES_MAX
            connection.execute(f"PRAGMA max_page_count = {pages_max}")
            connection.execute(f"PRAGMA query_only = {(folder / READ_ONLY).exists():d}")
        return connection

    Held.get = troubled  # type: ignore[method-assign]  # that is the trouble


@contextlib.contextmanager
def full(folder: Path) -> Iterator[None]:
    """Let the disk be full."""
    with _told(folder / FULL):
        yield


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Let the store be read-only."""
    with _told(folder / READ_ONLY):
        yield


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the store's write lock, as a person with an open transaction does."""
    with lock_of(folder / "store.db"):
        yield


@contextlib.contextmanager
def lock_of(file: Path) -> Iterator[None]:
    """Hold the write lock of a SQLite file."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None, timeout=30)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


@contextlib.contextmanager
def _told(sign: Path) -> Iterator[None]:
    sign.touch()
    try:
        yield
    finally:
        sign.unlink()


Trouble = Callable[[Path], contextlib.AbstractContextManager[None]]
