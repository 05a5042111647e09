"""The limits of queues in a SQLite file: each method is one transaction."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Callable

import msgspec

from tidewheel.store.admission import QueueLimit, QueueLoad, Waiting, load_from
from tidewheel.store.columns import micros
from tidewheel.store.records import RunRef
from tidewheel.store.sqlite.outbox import Do
from tidewheel.store.statements import statements

_SQL = statements("sqlite", "admission")


class SqliteAdmission:
    """The limits: *read* shares the file with others, *write* has it alone; *now* is the time."""

    def __init__(self, read: Do, write: Do, now: Callable[[], dt.datetime]) -> None:
        self._read = read
        self._write = write
        self._now = now

    async def put(self, limit: QueueLimit) -> None:
        """Set the limit of a queue, and count its open runs."""
        row = (*msgspec.structs.astuple(limit), micros(self._now()))

        def put(connection: sqlite3.Connection) -> None:
            connection.execute(_SQL["put"], row)
            connection.execute(_SQL["count_open"], (limit.namespace, limit.queue))

        await self._write(put)

    async def remove(self, namespace: str, queue: str) -> bool:
        """Let a queue be without a limit."""
        return await self._write(
            lambda connection: connection.execute(_SQL["remove"], (namespace, queue)).rowcount == 1
        )

    async def loads(self, namespace: str) -> list[QueueLoad]:
        """List the limits of a namespace."""
        rows = await self._read(lambda connection: connection.execute(_SQL["loads"], (namespace,)).fetchall())
        return [load_from(row) for row in rows]

    async def waiting(self, *, batch_max: int) -> list[Waiting]:
        """List queued runs that may be admitted."""
        now = micros(self._now())
        return await self._read(lambda connection: _waiting(connection, now, batch_max))


def _waiting(connection: sqlite3.Connection, now: int, batch_max: int) -> list[Waiting]:
    found: list[Waiting] = []
    for namespace, queue, room in connection.execute(_SQL["queues"]).fetchall():
        most = batch_max - len(found) if room is None else min(max(room, 0), batch_max - len(found))
        rows = connection.execute(_SQL["oldest"], (namespace, queue, now, most)).fetchall()
        found += [Waiting(run=RunRef(namespace, run_id), queue=queue) for (run_id,) in rows]
    return found


def load_of(connection: sqlite3.Connection, namespace: str, queue: str) -> QueueLoad | None:
    """Return the limit of a queue, and what counts in it; None if it has none."""
    row = connection.execute(_SQL["load"], (namespace, queue)).fetchone()
    return None if row is None else load_from(row)
