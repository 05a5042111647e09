"""What the event bus is owed, in Postgres: each method is one statement, and one transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import psycopg

from tidewheel.store.columns import moment
from tidewheel.store.outbox import (
    COUNTED_MAX,
    LOOKED_MAX,
    ROWS_MAX,
    Backlog,
    Claimed,
    DeadLetter,
    DeadLetterFilter,
    Owed,
    OwedRow,
    Place,
    StoredPassage,
    Trouble,
    dead_letter_of,
)
from tidewheel.store.postgres.arrays import BigintArray, ByteaArray, TextArray
from tidewheel.store.postgres.json_rows import storable
from tidewheel.store.records import RunRef
from tidewheel.store.statements import statements

_SQL = statements("postgres", "outbox")

Connection = psycopg.AsyncConnection[Any]
#: Does something over a connection, in a transaction that may be repeated.
Do = Callable[[Callable[[Connection], Awaitable[Any]]], Awaitable[Any]]


class PostgresOutbox:
    """The rows of the outbox; *given_now* is the time, where a test gives it."""

    def __init__(self, do: Do, given_now: Callable[[], int | None]) -> None:
        self._do = do
        self._given_now = given_now

    async def claim(self, relay: str, *, after: bytes, limit: int, lease_s: float) -> Claimed:
        """Claim rows of at most *limit* runs after *after*."""
        rows = await self._rows(
            "claim",
            {
                "after": after,
                "relay": relay,
                "limit_max": limit,
                "looked_max": LOOKED_MAX,
                "rows_max": ROWS_MAX,
                "lease": _micros(lease_s),
            },
        )
        last_key, is_over, now, *_ = rows[0]
        owed = [_owed(row[3:]) for row in rows if row[3] is not None]
        after = b"" if last_key is None or is_over else last_key
        return Claimed(owed=owed, after=after, now=moment(now))

    async def passages(self, places: Sequence[Place]) -> list[StoredPassage | None]:
        """Read rows of the journal."""
        found: list[StoredPassage | None] = [None] * len(places)
        for place, *row, public in await self._rows("passages", _places(places)):
            found[place - 1] = StoredPassage(row=tuple(row), public=public)
        return found

    async def renew(self, relay: str, run_keys: Sequence[bytes], lease_s: float) -> None:
        """Prolong leases."""
        keys = ByteaArray.of(run_keys)
        await self._execute("renew", {"run_keys": keys, "relay": relay, "lease": _micros(lease_s)})

    async def sent(self, places: Sequence[Place]) -> None:
        """Forget rows that were told."""
        await self._execute("sent", _places(places))

    async def release(self, relay: str, run_keys: Sequence[bytes]) -> None:
        """Give up leases."""
        await self._execute("release", {"run_keys": ByteaArray.of(run_keys), "relay": relay})

    async def failed(self, troubles: Sequence[Trouble]) -> None:
        """Count failures."""
        afters = [trouble.retry_after for trouble in troubles]
        await self._execute(
            "failed",
            {
                **_places([trouble.place for trouble in troubles]),
                "errors": TextArray.of([storable(trouble.error) for trouble in troubles]),
                "retry_afters": BigintArray.of(
                    [None if after is None else _micros(after.total_seconds()) for after in afters]
                ),
            },
        )

    async def backlog(self) -> Backlog:
        """Look at how much is owed."""
        ((rows, dead, oldest_at, now),) = await self._rows("backlog", {"counted_max": COUNTED_MAX})
        oldest = None if oldest_at is None else moment(oldest_at)
        return Backlog(rows=rows, dead=dead, oldest_at=oldest, now=moment(now))

    async def dead_letters(self, which: DeadLetterFilter) -> list[DeadLetter]:
        """List dead letters."""
        after = which.after or Place(b"", -1)
        asked = {
            "namespace": which.namespace,
            "run_id": which.run_id,
            "workflow": which.workflow,
            "limit_max": which.limit,
            "after_key": after.run_key,
            "after_seq": after.first_seq,
            "counted_max": COUNTED_MAX,
        }
        return [dead_letter_of(row) for row in await self._rows("dead_letters", asked)]

    async def redrive(self, places: Sequence[Place]) -> int:
        """Let dead letters be tried again."""
        return await self._execute("redrive", _places(places))

    async def discard(self, places: Sequence[Place]) -> int:
        """Forget dead letters."""
        return await self._execute("discard", _places(places))

    async def _rows(self, name: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        async def ask(connection: Connection) -> list[tuple[Any, ...]]:
            return await (await self._ask(connection, name, parameters)).fetchall()

        rows: list[tuple[Any, ...]] = await self._do(ask)
        return rows

    async def _execute(self, name: str, parameters: dict[str, Any]) -> int:
        async def ask(connection: Connection) -> int:
            return (await self._ask(connection, name, parameters)).rowcount

        count: int = await self._do(ask)
        return count

    async def _ask(
        self, connection: Connection, name: str, parameters: dict[str, Any]
    ) -> psycopg.AsyncCursor[Any]:
        asked = {**parameters, "now": self._given_now()}
        return await connection.execute(_SQL[name], asked, prepare=True, binary=True)


def _owed(row: Sequence[Any]) -> Owed:
    run_key, namespace, run_id, workflow, attempts, first_seqs, last_seqs, sizes, since = row
    return Owed(
        run_key=run_key,
        run=RunRef(namespace, run_id),
        workflow=workflow,
        attempts=attempts,
        since=moment(since),
        rows=tuple(
            OwedRow(first_seq=first, last_seq=last, size=size)
            for first, last, size in zip(first_seqs, last_seqs, sizes, strict=True)
        ),
    )


def _places(places: Sequence[Place]) -> dict[str, Any]:
    return {
        "run_keys": ByteaArray.of([place.run_key for place in places]),
        "first_seqs": BigintArray.of([place.first_seq for place in places]),
    }


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)
