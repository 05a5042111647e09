"""Transactional steps: the users' statements and the step's result in one commit.

Each step has a connection of its own, whose transaction is begun before the user's code gets it: that costs
nothing and locks nothing. The run is locked last, when the user's statements are done, so a step that takes
its time holds up nobody. A plain function gets a ``psycopg.Connection``, an ``async`` one a
``psycopg.AsyncConnection``.

The user's code can neither commit nor roll back; a ``COMMIT`` that it sends as a statement is found out.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import psycopg
from psycopg.rows import tuple_row

from tidewheel.journal.errors import InvalidRequest
from tidewheel.store.append import Append, Appended, Fate, Verdict
from tidewheel.store.errors import CommitUnknown
from tidewheel.store.postgres.appending import Again, Lock, Look, Question, Write, appending
from tidewheel.store.postgres.database import Database, hang_up
from tidewheel.store.postgres.faults import is_lost, translated
from tidewheel.store.postgres.writer import new_key
from tidewheel.store.statements import statements

T = TypeVar("T")

_SQL = statements("postgres", "appending")
_NOT_YOURS = "a transactional step ends with its result: its code can neither commit nor roll back"
_ENDED = (
    "the code of a transactional step has ended the transaction itself: leave COMMIT and ROLLBACK to the step"
)


class _Refusing:
    """What a connection refuses while the user's code has it."""

    def commit(self) -> NoReturn:
        """Refused: the step's result is not there yet."""
        raise InvalidRequest(_NOT_YOURS)

    def rollback(self) -> NoReturn:
        """Refused: raise an error instead, which rolls back."""
        raise InvalidRequest(_NOT_YOURS)

    def set_autocommit(self, *_: object) -> NoReturn:
        """Refused: it would end the transaction."""
        raise InvalidRequest(_NOT_YOURS)


class StepConnection(_Refusing, psycopg.Connection[Any]):
    """What the code of a plain function executes its statements on."""


class AsyncStepConnection(_Refusing, psycopg.AsyncConnection[Any]):
    """What the code of an ``async`` function executes its statements on."""


class StepLink:
    """A connection with a transaction, the same to us whether it blocks or not."""

    def __init__(self, connection: StepConnection | AsyncStepConnection, token: str) -> None:
        self.connection = connection
        self._token = token
        #: The settings that our statements rest on, as they were before the user's code had the connection.
        self._settings: tuple[str, ...] = ()

    @classmethod
    async def open(cls, database: Database, *, is_async: bool) -> StepLink:
        """Connect, and begin the transaction."""
        arguments = database.step_arguments()
        connection: StepConnection | AsyncStepConnection
        if is_async:
            connection = await AsyncStepConnection.connect(**arguments)
        else:
            connection = await asyncio.to_thread(lambda: StepConnection.connect(**arguments))
        link = cls(connection, secrets.token_hex(8))
        try:
            await link.one("BEGIN")
            link._settings = (await link.row(_SQL["sign_step"], (link._token,)))[:3]
        except BaseException:
            await link.close()
            raise
        return link

    async def one(self, sql: str, parameters: Any = None) -> Any:
        """Execute a statement and return the first value of its first row, if it gives rows."""
        row = await self.row(sql, parameters)
        return row[0] if row else None

    async def row(self, sql: str, parameters: Any = None) -> tuple[Any, ...]:
        """Execute a statement and return its first row, empty if it gives none.

        The cursor is ours: what the connection makes by itself is the user's to choose.
        """
        connection = self.connection
        if not isinstance(connection, AsyncStepConnection):
            return await asyncio.to_thread(_first_row, connection, sql, parameters)
        async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(sql, parameters)
            found = await cursor.fetchone() if cursor.description else None
            return found or ()

    async def take_back(self) -> bool:
        """Tell whether this is still the transaction that was begun, and undo what the user's code has set.

        A tenant's schema or role, say, is not the one that our tables are in.
        """
        return bool(await self.one(_SQL["take_back"], (self._token, *self._settings)))

    async def close(self) -> None:
        """Close it; what was not committed is rolled back. Code that still uses it is told."""
        connection = self.connection
        if connection.closed:
            return
        if connection.info.transaction_status is psycopg.pq.TransactionStatus.ACTIVE:
            hang_up(connection)
        if isinstance(connection, AsyncStepConnection):
            await connection.close()
        else:
            await asyncio.to_thread(_close, connection)


def _first_row(connection: StepConnection, sql: str, parameters: Any) -> tuple[Any, ...]:
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(sql, parameters)
        found = cursor.fetchone() if cursor.description else None
        return found or ()


def _close(connection: StepConnection) -> None:
    with connection.lock:
        connection.close()


class PostgresTransaction:
    """A transactional step over *link*; *clock* stands in for the database's, in tests."""

    def __init__(self, database: Database, link: StepLink, clock: Callable[[], float] | None) -> None:
        self._database = database
        self._link = link
        self._clock = clock
        self.is_committed = False

    @property
    def connection(self) -> Any:
        """What the user's code executes its statements on."""
        return self._link.connection

    async def commit(self, append: Append) -> Appended:
        """Write *append* with what the user's statements did; if a fact of it is refused, neither."""
        refused = False

        def keep(answers: Any) -> bool:
            nonlocal refused
            refused = any(verdict is not Verdict.WRITTEN for answer in answers for verdict in answer.verdicts)
            return not refused

        conversation = appending([append], waiting=True, clock=self._clock, new_key=new_key, keep=keep)
        reply: Any = None
        try:
            await self._take_back()
            while True:
                reply = await self._exchange(conversation.send(reply))
        except StopIteration as done:
            answer: Appended = done.value.answers[0]
            return _refused(answer) if refused else answer
        except (psycopg.Error, TimeoutError) as error:
            raise translated(error, self._database.shown) from error
        finally:
            conversation.close()

    async def close(self) -> None:
        """Roll back what was not committed, and close the connection."""
        with contextlib.suppress(psycopg.Error):
            await self._link.close()

    async def _take_back(self) -> None:
        if not await self._bounded(self._link.take_back()):
            raise InvalidRequest(_ENDED)
        await self._bounded(self._link.one("SAVEPOINT tidewheel_append"))

    async def _bounded(self, work: Awaitable[T]) -> T:
        """Wait for an exchange of our own; how long the user's statements take is the user's to say."""
        return await self._database.bounded(self._link.connection, work)

    async def _exchange(self, question: Question) -> Any:
        link = self._link
        match question:
            case Lock(asked=asked, waiting=waiting):
                return await self._bounded(link.one(_SQL["lock"], (asked.decode(), waiting)))
            case Look(asked=asked):
                return await self._bounded(link.one(_SQL["look"], (asked.decode(),)))
            case Again():
                return await self._bounded(link.one("ROLLBACK TO tidewheel_append"))
            case Write(written=written, now=now):
                await self._bounded(link.one(_SQL["write"], written.parameters(now)))
                await self._commit()
                return None

    async def _commit(self) -> None:
        try:
            await self._bounded(self._link.one("COMMIT"))
        except Exception as error:
            if is_lost(error):
                raise CommitUnknown(
                    f"{self._database.shown}: the reply to a commit was lost ({error}); repeat the append"
                ) from error
            raise
        self.is_committed = True


def _refused(answer: Appended) -> Appended:
    """Return *answer* without what the rollback undid."""
    answer.hints, answer.ended, answer.landed = [], [], []
    if answer.fate is Fate.COMMITTED:
        answer.fate = Fate.STALE
    return answer
