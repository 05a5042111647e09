"""The limits of queues, in Postgres."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import psycopg

from tidewheel.store.admission import QueueLimit, QueueLoad, Waiting, load_from
from tidewheel.store.postgres.outbox import Do
from tidewheel.store.records import RunRef
from tidewheel.store.statements import statements

_SQL = statements("postgres", "admission")

Connection = psycopg.AsyncConnection[Any]


class PostgresAdmission:
    """The limits; *given_now* is the time, where a test gives it."""

    def __init__(self, do: Do, given_now: Callable[[], int | None]) -> None:
        self._do = do
        self._given_now = given_now

    async def put(self, limit: QueueLimit) -> None:
        """Set the limit of a queue, then count its open runs.

        In two transactions: whoever starts a run after the first sees the limit, whoever did before is
        counted by the second. One that commits in between without having seen the limit is not counted.
        """
        asked = {**msgspec.structs.asdict(limit), "now": self._given_now()}
        for name in ("put", "count_open"):
            await self._do(_executing(name, asked))

    async def remove(self, namespace: str, queue: str) -> bool:
        """Let a queue be without a limit."""
        return bool(await self._rows("remove", {"namespace": namespace, "queue": queue}))

    async def loads(self, namespace: str) -> list[QueueLoad]:
        """List the limits of a namespace."""
        return [load_from(row) for row in await self._rows("loads", {"namespace": namespace})]

    async def waiting(self, *, batch_max: int) -> list[Waiting]:
        """List queued runs that may be admitted."""
        rows = await self._rows("waiting", {"batch_max": batch_max, "now": self._given_now()})
        return [Waiting(run=RunRef(namespace, run_id), queue=queue) for namespace, run_id, queue in rows]

    async def _rows(self, name: str, asked: dict[str, Any]) -> list[tuple[Any, ...]]:
        async def read(connection: Connection) -> list[tuple[Any, ...]]:
            cursor = await connection.execute(_SQL[name], asked)
            return await cursor.fetchall()

        found: list[tuple[Any, ...]] = await self._do(read)
        return found


def _executing(name: str, asked: dict[str, Any]) -> Callable[[Connection], Awaitable[None]]:
    async def execute(connection: Connection) -> None:
        await connection.execute(_SQL[name], asked)

    return execute
