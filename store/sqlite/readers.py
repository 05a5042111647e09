"""A few threads that read, each over a connection of its own.

Each call is one read transaction, so that all it reads is as of one moment. Readers neither wait for
the writer nor make it wait.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from tidewheel.store.errors import StoreUnavailable
from tidewheel.store.sqlite.connection import Database, Held
from tidewheel.store.sqlite.faults import translated

READERS_MAX = 4

T = TypeVar("T")


class Readers:
    """Answers questions in threads; more of them than ``READERS_MAX`` at a time wait for each other."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._threads = ThreadPoolExecutor(READERS_MAX, thread_name_prefix="tidewheel-reader")
        self._own = threading.local()
        self._held: list[Held] = []

    def ask(self, question: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Answer *question* over one snapshot."""
        return self.do(lambda: self._answer(question))

    def do(self, work: Callable[[], T]) -> Future[T]:
        """Execute *work* in one of the threads."""
        try:
            return self._threads.submit(work)
        except RuntimeError as error:
            raise StoreUnavailable(f"{self._database.path}: the store was closed") from error

    def close(self) -> None:
        """Finish what was asked for, then let go."""
        self._threads.shutdown()
        for held in self._held:
            held.drop()

    def _answer(self, question: Callable[[sqlite3.Connection], T]) -> T:
        held = getattr(self._own, "held", None)
        if held is None:
            held = self._own.held = Held(self._database, reads_only=True)
            self._held.append(held)
        try:
            connection = held.get()
            connection.execute("BEGIN")
            try:
                return question(connection)
            finally:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise translated(error, self._database.path) from error
