"""The connection over which known writes go: prepared statements, one at a time, and no task that waits.

psycopg looks at the type of each argument, keeps a cursor per statement and waits twice for the socket;
asyncio makes a future, or a task, for whoever waits. Here the arguments come packed as Postgres's binary
form has them, the statements are prepared once (by the protocol, not by SQL's PREPARE, so that poolers know
of it), the event loop watches the socket all the time, and whoever asked is called when the answer is there.

Watching all the time also tells at once when the server ends the connection while nothing is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import psycopg
from psycopg import errors, pq

from tidewheel.store.postgres.database import Database, Lent, hang_up
from tidewheel.store.postgres.faults import is_lost

#: Takes the columns of the one row of the answer, in binary form, or what went wrong.
Answered: TypeAlias = Callable[[list[bytes | None] | Exception], None]

_GOOD = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


class WritingLink:
    """One connection of *database*, for *statements* by name; to be opened before use, and after a loss."""

    def __init__(self, database: Database, statements: Mapping[str, str]) -> None:
        self._database = database
        self._statements = statements
        self._loop = asyncio.get_running_loop()
        self._names = {name: f"tidewheel_{name}".encode() for name in statements}
        self._formats = [pq.Format.BINARY] * 100
        self._lent: Lent | None = None
        self._wire: pq.abc.PGconn | None = None
        #: Remembered, since a connection that fails forgets it, and the event loop has to be told.
        self._socket = -1
        self._answered: Answered | None = None
        #: What has come of the answer so far.
        self._answer: pq.abc.PGresult | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._sent_at_s = 0.0
        self._is_late = False

    @property
    def is_open(self) -> bool:
        """Whether something can be asked, as far as is known here."""
        return self._wire is not None

    @property
    def backend_pid(self) -> int:
        """The server's process for this connection."""
        assert self._wire is not None
        return self._wire.backend_pid

    async def open(self) -> None:
        """Connect and prepare the statements; nothing if that was done."""
        if self._lent is not None:
            return
        lent = self._lent = await self._database.take()
        try:
            for name, sql in self._statements.items():
                await self._database.timed(lent.connection, _prepare(lent.connection, self._names[name], sql))
        except BaseException as error:
            self._lent = None
            await asyncio.shield(self._database.throw_away(lent, error))
            raise
        self._wire = lent.connection.pgconn
        self._socket = self._wire.socket
        self._loop.add_reader(self._socket, self._hear)

    async def close(self) -> None:
        """Let go of the connection. May be called twice."""
        lent = self._stop()
        if lent is not None:
            await lent.give_back()

    def ask(self, name: str, arguments: Sequence[bytes | None], answered: Answered) -> None:
        """Execute a statement, and call *answered*, not from in here. One is asked for at a time."""
        wire, loop = self._wire, self._loop
        assert wire is not None
        assert self._answered is None
        self._answered = answered
        self._sent_at_s = loop.time()
        if self._watch is None:
            limit_s = self._database.config.exchange_timeout_s
            self._watch = loop.call_at(self._sent_at_s + limit_s, self._look_at_the_clock)
        try:
            wire.send_query_prepared(
                self._names[name], arguments, self._formats[: len(arguments)], result_format=pq.Format.BINARY
            )
            if wire.flush():
                loop.add_writer(self._socket, self._send_more)
        except psycopg.OperationalError as error:
            loop.call_soon(self._lose, error)

    # Called by the event loop

    def _send_more(self) -> None:
        wire = self._wire
        if wire is None:
            return
        try:
            if not wire.flush():
                self._loop.remove_writer(self._socket)
        except psycopg.OperationalError as error:
            self._lose(error)

    def _hear(self) -> None:
        wire = self._wire
        assert wire is not None
        try:
            wire.consume_input()
            while not wire.is_busy():
                answer = wire.get_result()
                if answer is None:
                    break
                if self._answer is None:  # a server that goes away may say so twice
                    self._answer = answer
            else:
                return  # there is more to come
        except psycopg.OperationalError as error:
            self._lose(error)
            return
        self._conclude(wire)

    def _conclude(self, wire: pq.abc.PGconn) -> None:
        """All was heard: tell who asked, if anybody did."""
        answer, self._answer = self._answer, None
        if answer is None:
            if wire.status == pq.ConnStatus.BAD:
                self._lose(psycopg.OperationalError("the server ended the connection"))
            return
        if answer.status in _GOOD:
            answered, self._answered = self._answered, None
            assert answered is not None
            answered([answer.get_value(0, column) for column in range(answer.nfields)])
            return
        error = _error_of(answer, wire)
        if is_lost(error):
            self._lose(error)
            return
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(error)

    def _look_at_the_clock(self) -> None:
        """Let go of a server that does not answer in time: what it does not bound itself is COMMIT."""
        self._watch = None
        if self._answered is None:
            return
        loop, limit_s = self._loop, self._database.config.exchange_timeout_s
        due_s = self._sent_at_s + limit_s
        if loop.time() < due_s:
            self._watch = loop.call_at(due_s, self._look_at_the_clock)
            return
        self._lose(TimeoutError(f"no answer within {limit_s:g} s"))

    def _lose(self, error: Exception) -> None:
        """The connection is gone: tell who asked, and let others know that the server may be another now."""
        answered, self._answered = self._answered, None
        lent = self._stop()
        if lent is not None:
            hang_up(lent.connection)
            self._database.lose(lent)
        if answered is not None:
            answered(error)

    def _stop(self) -> Lent | None:
        wire, self._wire = self._wire, None
        lent, self._lent = self._lent, None
        self._answer = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if wire is not None:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        return lent


def _error_of(answer: pq.abc.PGresult, wire: pq.abc.PGconn) -> Exception:
    if wire.status == pq.ConnStatus.BAD and not answer.error_field(pq.DiagnosticField.SQLSTATE):
        return psycopg.OperationalError(answer.get_error_message())
    return errors.error_from_result(answer)


async def _prepare(connection: psycopg.AsyncConnection[Any], name: bytes, sql: str) -> None:
    """Have a statement prepared, over a connection that nobody else uses."""
    wire, loop = connection.pgconn, asyncio.get_running_loop()
    wire.send_prepare(name, sql.encode())
    while wire.flush():
        await _ready(loop.add_writer, loop.remove_writer, wire.socket)
    answer = None
    while True:
        while wire.is_busy():
            await _ready(loop.add_reader, loop.remove_reader, wire.socket)
            wire.consume_input()
        said = wire.get_result()
        if said is None:
            break
        answer = answer or said
    assert answer is not None
    if answer.status not in _GOOD:
        raise _error_of(answer, wire)


async def _ready(add: Callable[..., None], remove: Callable[[int], Any], socket: int) -> None:
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    add(socket, _wake, waiter)
    try:
        await waiter
    finally:
        remove(socket)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
