"""A statement that is sent so often that the driver's general way would cost as much as all else of it.

psycopg looks at the type of each argument, keeps a cursor per statement and waits twice for the socket. Here
the arguments come packed as Postgres's binary form has them, the statement is prepared once per connection
(by the protocol, not by SQL's PREPARE, so that poolers know of it), and one wait is for the answer.

Rule: whoever uses this has the connection for itself, outside a pipeline. One who is cancelled in the middle
leaves a connection that nobody may use again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg import errors, pq

_GOOD = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


class Prepared:
    """A statement with *count* arguments, numbered from $1; its *name* is nobody else's."""

    def __init__(self, name: str, sql: str, count: int) -> None:
        self._name = name.encode()
        self._sql = sql.encode()
        self._formats = [pq.Format.BINARY] * count
        self._known_to: WeakSet[psycopg.AsyncConnection[Any]] = WeakSet()

    async def ask(
        self, connection: psycopg.AsyncConnection[Any], arguments: Sequence[bytes | None]
    ) -> list[bytes | None]:
        """Return the columns of the one row of the answer, in binary form."""
        wire = connection.pgconn
        if connection not in self._known_to:
            wire.send_prepare(self._name, self._sql)
            await _answer(wire)
            self._known_to.add(connection)
        wire.send_query_prepared(self._name, arguments, self._formats, result_format=pq.Format.BINARY)
        answer = await _answer(wire)
        return [answer.get_value(0, column) for column in range(answer.nfields)]


async def _answer(wire: pq.abc.PGconn) -> pq.abc.PGresult:
    """Send what was said, and wait for what is answered; raise what the server complains of."""
    loop = asyncio.get_running_loop()
    while wire.flush():
        await _ready(loop.add_writer, loop.remove_writer, wire.socket)
        wire.consume_input()  # the server may have to be heard before it takes more
    answer = await _result(wire)
    assert answer is not None
    while await _result(wire) is not None:
        pass  # a server that goes away may say so twice
    if answer.status in _GOOD:
        return answer
    if wire.status == pq.ConnStatus.BAD and not answer.error_field(pq.DiagnosticField.SQLSTATE):
        raise psycopg.OperationalError(answer.get_error_message())
    raise errors.error_from_result(answer)


async def _result(wire: pq.abc.PGconn) -> pq.abc.PGresult | None:
    """Return the next part of the answer, None after the last."""
    while wire.is_busy():
        loop = asyncio.get_running_loop()
        await _ready(loop.add_reader, loop.remove_reader, wire.socket)
        wire.consume_input()
    return wire.get_result()


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
