"""Transactional steps: the users' statements and the step's result in one commit.

Decision: the write lock is taken (``BEGIN IMMEDIATE``) when the user's code executes its first statement,
whatever that is. Taking it at the first write would be too late: what was read before may have changed, and
SQLite would then refuse the write for good. Taking it before the user's code runs would make everybody wait
for what that code does before it comes to the database. From the first statement to the end of the step
nobody else can write, so slow work belongs before it.

The user's code can neither commit nor roll back, nor write to the store's own tables.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NoReturn

from tidewheel.journal.errors import InvalidRequest
from tidewheel.store.append import Append, Appended, Fate, Verdict
from tidewheel.store.sqlite.connection import Database
from tidewheel.store.sqlite.faults import commit_error, translated

_READS = frozenset({sqlite3.SQLITE_READ, sqlite3.SQLITE_SELECT})
_OURS = "tidewheel_"
_NOT_YOURS = "a transactional step ends with its result: its code can neither commit nor roll back"


def _may(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Say whether the user's code may do this: all but ending the transaction and changing our tables."""
    if action == sqlite3.SQLITE_TRANSACTION:
        return sqlite3.SQLITE_DENY
    if action not in _READS and any(name is not None and name.startswith(_OURS) for name in (first, second)):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


class StepCursor(sqlite3.Cursor):
    """A cursor whose first statement begins the transaction."""

    connection: StepConnection

    def execute(self, *arguments: Any) -> StepCursor:
        """Execute a statement within the step's transaction."""
        with self.connection.in_step():
            super().execute(*arguments)
        return self

    def executemany(self, *arguments: Any) -> StepCursor:
        """Execute a statement many times within the step's transaction."""
        with self.connection.in_step():
            super().executemany(*arguments)
        return self

    def executescript(self, *_: Any) -> NoReturn:
        """Refused: Python commits before a script."""
        raise InvalidRequest(
            "a transactional step cannot execute a script: execute its statements one by one"
        )


class StepConnection(sqlite3.Connection):
    """What the user's code executes its statements on. One statement is executed at a time."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._one_at_a_time = threading.RLock()
        #: From ``lend`` to ``take_back`` the user's code has the connection.
        self._is_lent = False
        self._path = Path()

    def lend(self, path: Path) -> None:
        """From now on the user's code has the connection; *path* is for messages."""
        self._is_lent, self._path = True, path

    @contextlib.contextmanager
    def taken_back(self) -> Iterator[None]:
        """From now on the connection is ours; nobody else uses it within the block."""
        with self._one_at_a_time:
            self._is_lent = False
            self.set_authorizer(None)
            yield

    def interrupt_user(self) -> None:
        """End a statement of the user's code that is being executed, but not a commit of ours."""
        if self._is_lent:
            self.interrupt()

    def begin(self) -> None:
        """Take the write lock, unless the connection has it."""
        if self.in_transaction:
            return
        try:
            sqlite3.Cursor(self).execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def in_step(self) -> contextlib.AbstractContextManager[Any]:
        """Begin the transaction unless it has begun; return what is held while a statement is executed."""
        with self._one_at_a_time:
            if self._is_lent and not self.in_transaction:
                self.begin()
                self.set_authorizer(_may)
            return self._one_at_a_time

    def cursor(self, factory: Any = StepCursor) -> Any:
        """Return a cursor of the step."""
        return super().cursor(factory if self._is_lent else sqlite3.Cursor)

    def execute(self, *arguments: Any) -> Any:
        """Execute a statement within the step's transaction."""
        return self.cursor().execute(*arguments)

    def executemany(self, *arguments: Any) -> Any:
        """Execute a statement many times within the step's transaction."""
        return self.cursor().executemany(*arguments)

    def commit(self) -> None:
        """Refused: the step's result is not there yet."""
        raise InvalidRequest(_NOT_YOURS)

    def rollback(self) -> None:
        """Refused: raise an error instead, which rolls back."""
        raise InvalidRequest(_NOT_YOURS)

    def executescript(self, *_: Any) -> NoReturn:
        """Refused: Python commits before a script."""
        raise InvalidRequest(
            "a transactional step cannot execute a script: execute its statements one by one"
        )

    def __exit__(self, *_: object) -> None:  # type: ignore[override]  # nothing is swallowed
        """Neither commit nor roll back: the step does."""


class SqliteTransaction:
    """A transactional step. *write* appends to a connection; *in_thread* executes what may block."""

    def __init__(
        self,
        database: Database,
        connection: StepConnection,
        *,
        write: Callable[[sqlite3.Connection, Append], Appended],
        in_thread: Callable[[Callable[[], Any]], Future[Any]],
    ) -> None:
        self._database = database
        self._connection = connection
        self._write = write
        self._in_thread = in_thread
        self.is_committed = False

    @property
    def connection(self) -> Any:
        """What the user's code executes its statements on."""
        return self._connection

    async def commit(self, append: Append) -> Appended:
        """Write *append* with what the user's statements did; if a fact of it is refused, neither."""
        answer: Appended = await asyncio.wrap_future(self._in_thread(lambda: self._commit(append)))
        return answer

    def _commit(self, append: Append) -> Appended:
        with self._connection.taken_back():
            return self._commit_alone(self._connection, append)

    def _commit_alone(self, connection: StepConnection, append: Append) -> Appended:
        try:
            connection.begin()
            answer = self._write(connection, append)
            if any(verdict is not Verdict.WRITTEN for verdict in answer.verdicts):
                connection.execute("ROLLBACK")
                return _refused(answer)
        except sqlite3.Error as error:
            raise translated(error, self._database.path) from error
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise commit_error(error, self._database.path) from error
        self.is_committed = True
        return answer

    def close(self) -> None:
        """Roll back what was not committed, and close the connection: code that still runs can do no harm."""
        self._connection.interrupt_user()
        with self._connection.taken_back():
            self._connection.close()


def _refused(answer: Appended) -> Appended:
    """Return *answer* without what the rollback undid."""
    answer.hints, answer.ended, answer.landed = [], [], []
    if answer.fate is Fate.COMMITTED:
        answer.fate = Fate.STALE
    return answer
