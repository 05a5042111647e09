"""One connection to a SQLite file that several processes write: its transactions, and its schema.

Raises the errors of sqlite3; ``advice`` says in words what to do about them.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidewheel.broker.embedded import statements as sql
from tidewheel.broker.embedded.wakeups import ring

#: How long to wait for another process to finish its transaction.
BUSY_S = 5.0

_CREATE_ATTEMPTS_MAX = 50
_CREATE_PAUSE_S = 0.1

_ADVICE = {
    "SQLITE_BUSY": "another process keeps it locked; try again, or see which process holds it",
    "SQLITE_LOCKED": "another process keeps it locked; try again, or see which process holds it",
    "SQLITE_READONLY": "it cannot be written; check the permissions of the file and its folder",
    "SQLITE_PERM": "it cannot be written; check the permissions of the file and its folder",
    "SQLITE_FULL": "the disk is full; make room, then try again",
    "SQLITE_CANTOPEN": "it cannot be opened; check that its folder exists and may be written",
    "SQLITE_NOTADB": "it is not a database; name another file, or if this was the broker's, "
    "stop all processes and remove it: hints in it are given again",
    "SQLITE_CORRUPT": "it is damaged; stop all processes and remove it: hints in it are given again",
    "SQLITE_IOERR": "the disk does not work; see the system's log",
}


class NotAQueueFile(sqlite3.DatabaseError):
    """The file is a database of something else, or of another release."""


class FileReplaced(sqlite3.OperationalError):
    """The file was removed or replaced while it was open; writing on would reach nobody."""


def advice(error: sqlite3.Error) -> str:
    """Say what is wrong with the file, and what to do about it."""
    if isinstance(error, NotAQueueFile):
        return f"it is not a file of this broker ({error}); name another file, or remove this one"
    if isinstance(error, FileReplaced):
        return f"{error}; connect again"
    # An extended code such as SQLITE_IOERR_WRITE begins with its kind.
    name = getattr(error, "sqlite_errorname", None) or ""
    kind = "_".join(name.split("_")[:2])
    return f"{_ADVICE[kind]} ({error})" if kind in _ADVICE else str(error)


class SqliteFile:
    """A connection to the file at *path*, which is made if it is not there.

    Used by one thread at a time. ``news`` set in a transaction wakes the consumers of this process
    when it is committed.
    """

    def __init__(
        self, path: Path, *, pages_max: int | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.path = path
        self.now_s = clock
        self.news = False
        self._inode: int | None = None
        self._sqlite = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(pages_max)
            self._inode = path.stat().st_ino
        except BaseException:
            self._sqlite.close()
            raise

    def close(self) -> None:
        """Let go of the file. May be called twice."""
        self._sqlite.close()

    def execute(self, statement: str, **values: object) -> sqlite3.Cursor:
        """Run one statement with named values."""
        parameters: dict[str, Any] = values
        return self._sqlite.execute(statement, parameters)

    def one(self, statement: str, **values: object) -> Any:
        """Return the first column of the only row."""
        return self.execute(statement, **values).fetchone()[0]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Do all or nothing; within another transaction, take part in that one.

        Immediate, since one that began by reading and finds another's write could not go on.
        """
        if self._sqlite.in_transaction:
            yield
            return
        self.check_file()
        self.news = False
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        if self.news:
            ring(self.path)

    def check_file(self) -> None:
        """Raise if the file at the path is not the one that is open."""
        try:
            same = self._inode is None or self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            same = False
        if not same:
            raise FileReplaced("it was removed or replaced while it was open")

    def _roll_back(self) -> None:
        # A full disk may have rolled back by itself.
        if self._sqlite.in_transaction:
            self.execute("ROLLBACK")

    def _prepare(self, pages_max: int | None) -> None:
        """Set up the connection, and the schema in a file that is new."""
        # NORMAL does not wait for the disk at each commit: the loss of power, not of a process, may
        # cost the last messages. A message is only a hint, and the store gives it again; waiting
        # for the disk at every hint and every acknowledgement would be the larger loss.
        self.execute("PRAGMA synchronous = NORMAL")
        if pages_max is not None:
            self.execute(f"PRAGMA max_page_count = {pages_max:d}")
        if self.one("PRAGMA application_id") == 0:
            self._create()
        found = self.one("PRAGMA application_id"), self.one("PRAGMA user_version")
        if found != (sql.APPLICATION_ID, sql.SCHEMA_VERSION):
            raise NotAQueueFile(f"schema {found[1]} of application {found[0]:#x}")

    def _create(self) -> None:
        """Make the tables, unless another process does so at the same time."""
        if self.one("SELECT count(*) FROM sqlite_master"):
            return
        self._switch_to_wal()
        with self.transaction():
            if self.one("PRAGMA application_id") != 0:
                return
            for statement in sql.SCHEMA:
                self.execute(statement)
            self.execute(f"PRAGMA application_id = {sql.APPLICATION_ID:d}")
            self.execute(f"PRAGMA user_version = {sql.SCHEMA_VERSION:d}")

    def _switch_to_wal(self) -> None:
        """Let readers and the writer not wait for each other; stays so with the file."""
        for attempt in range(_CREATE_ATTEMPTS_MAX):
            try:
                self.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                # SQLite does not wait for others here, whatever its timeout.
                busy = error.sqlite_errorcode == sqlite3.SQLITE_BUSY
                if not busy or attempt == _CREATE_ATTEMPTS_MAX - 1:
                    raise
            time.sleep(_CREATE_PAUSE_S)
