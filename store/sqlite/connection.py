"""Connections to the store's file: how they are opened, and how a file that went away is noticed.

An open connection goes on working after its file was deleted or replaced, on a file that nobody else
sees. So ``Held`` remembers which file it was and looks before each use. It neither makes the file again nor
goes over to another one: the log beside it may still be that of the first.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tidewheel.store.errors import StoreUnavailable
from tidewheel.store.sqlite.faults import code_of, translated

#: How long a statement waits for another process's lock.
BUSY_TIMEOUT_S = 5.0
#: The oldest SQLite that has all that the statements use (RETURNING, several ON CONFLICT clauses).
SQLITE_VERSION_MIN = (3, 35, 0)
#: Each connection keeps so many statements prepared: all of ours, and some of a transactional step.
CACHED_STATEMENTS = 256
#: The log is cut back to this size after a checkpoint, which happens about every so many pages.
WAL_SIZE_MAX = 64 * 1024 * 1024
CHECKPOINT_PAGES = 2000
_LOCK_RETRY_S = 0.01

Connection = TypeVar("Connection", bound=sqlite3.Connection)


class Database:
    """One file, and the settings of every connection to it.

    *check* looks at each new connection, and raises if the file is not a store of this release.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        check: Callable[[sqlite3.Connection], None] = lambda _: None,
    ) -> None:
        self.path = path
        self.busy_timeout_s = busy_timeout_s
        self._check = check

    def create(self) -> None:
        """Make the file if it is not there, in the mode in which readers do not block the writer."""
        _check_version()
        with contextlib.closing(self._connect("rwc", sqlite3.Connection)) as connection:
            self._use_log(connection)

    def connect(self, *, reads_only: bool = False) -> sqlite3.Connection:
        """Return a new connection for one thread at a time."""
        return self.connect_as(sqlite3.Connection, reads_only=reads_only)

    def connect_as(self, factory: type[Connection], *, reads_only: bool = False) -> Connection:
        """Return a new connection of class *factory*."""
        self.identity()
        connection = self._connect("rw", factory)
        try:
            # FULL: a commit that was answered is on the disk, even if the machine loses power.
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA journal_size_limit = {WAL_SIZE_MAX}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            if reads_only:
                connection.execute("PRAGMA query_only = ON")
            self._check(connection)
        except BaseException as error:
            connection.close()
            raise translated(error, self.path) from error
        return connection

    def identity(self) -> tuple[int, int]:
        """Tell which file is there now; raises ``StoreUnavailable`` if none is."""
        try:
            found = os.stat(self.path)  # noqa: PTH116 - twice as quick as Path.stat, and on every call
        except OSError as error:
            raise StoreUnavailable(
                f"{self.path} is not there: put it back, or start anew ({error.strerror}); nothing written"
            ) from error
        return found.st_dev, found.st_ino

    def _connect(self, mode: str, factory: type[Connection]) -> Connection:
        try:
            return sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={mode}",
                uri=True,
                timeout=self.busy_timeout_s,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=CACHED_STATEMENTS,
                factory=factory,
            )
        except sqlite3.Error as error:
            raise translated(error, self.path) from error

    def _use_log(self, connection: sqlite3.Connection) -> None:
        """Switch to write-ahead logging, which stays with the file."""
        deadline = time.monotonic() + self.busy_timeout_s
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.Error as error:
                # SQLite does not wait by itself here if two processes switch at once.
                if code_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise translated(error, self.path) from error
                time.sleep(_LOCK_RETRY_S)


class Held:
    """The connection of one thread, opened when it is first needed."""

    def __init__(self, database: Database, *, reads_only: bool = False) -> None:
        self._database = database
        self._reads_only = reads_only
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    def get(self) -> sqlite3.Connection:
        """Return the connection, once the file is known to be the one it was."""
        identity = self._database.identity()
        if self._identity not in (None, identity):
            raise StoreUnavailable(
                f"{self._database.path} was replaced by another file while it was in use: restart this "
                "process; nothing was written"
            )
        if self._connection is None:
            self._connection = self._database.connect(reads_only=self._reads_only)
            self._identity = identity
        return self._connection

    def drop(self) -> None:
        """Close the connection; the next use opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()


def _check_version() -> None:
    if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
        least = ".".join(map(str, SQLITE_VERSION_MIN))
        raise StoreUnavailable(
            f"this Python has SQLite {sqlite3.sqlite_version}, and the store needs {least} or newer: "
            "use a newer Python"
        )
