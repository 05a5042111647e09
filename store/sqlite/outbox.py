"""What the event bus is owed, in a SQLite file: each method is one transaction."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from tidewheel.store.columns import micros, moment
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
from tidewheel.store.records import RunRef
from tidewheel.store.statements import statements

_SQL = statements("sqlite", "outbox")
T = TypeVar("T")


class Do(Protocol):
    """Does something over a connection, in a thread."""

    def __call__(self, work: Callable[[sqlite3.Connection], T], /) -> Coroutine[Any, Any, T]:
        """Do *work*."""


class SqliteOutbox:
    """The rows of the outbox: *read* shares the file with others, *write* has it alone; *now* is the time."""

    def __init__(self, read: Do, write: Do, now: Callable[[], dt.datetime]) -> None:
        self._read = read
        self._write = write
        self._now = now

    async def claim(self, relay: str, *, after: bytes, limit: int, lease_s: float) -> Claimed:
        """Claim rows of at most *limit* runs after *after*; the write lock is taken only if there are any."""
        now = self._now()
        found = await self._read(lambda connection: _lowest(connection, after, limit, now))
        if not found.free:
            return Claimed(owed=[], after=found.after, now=now)
        until = now + dt.timedelta(seconds=lease_s)

        def claim(connection: sqlite3.Connection) -> Claimed:
            lowest = _lowest(connection, after, limit, now)
            for run_key, first_seq, _ in lowest.free:
                asked = {"relay": relay, "until": micros(until), "run_key": run_key, "first_seq": first_seq}
                connection.execute(_SQL["claim"], asked)
            owed = [_owed(connection, run_key, attempts) for run_key, _, attempts in lowest.free]
            return Claimed(owed=owed, after=lowest.after, now=now)

        return await self._write(claim)

    async def passages(self, places: Sequence[Place]) -> list[StoredPassage | None]:
        """Read rows of the journal."""

        def read(connection: sqlite3.Connection) -> list[StoredPassage | None]:
            rows = [connection.execute(_SQL["passage"], place).fetchone() for place in places]
            return [None if row is None else StoredPassage(row=row[:-1], public=row[-1]) for row in rows]

        return await self._read(read)

    async def renew(self, relay: str, run_keys: Sequence[bytes], lease_s: float) -> None:
        """Prolong leases."""
        until = micros(self._now() + dt.timedelta(seconds=lease_s))
        await self._execute("renew", [(until, run_key, relay) for run_key in run_keys])

    async def sent(self, places: Sequence[Place]) -> None:
        """Forget rows that were told."""
        await self._execute("sent", places)

    async def release(self, relay: str, run_keys: Sequence[bytes]) -> None:
        """Give up leases."""
        await self._execute("release", [(run_key, relay) for run_key in run_keys])

    async def failed(self, troubles: Sequence[Trouble]) -> None:
        """Count failures."""
        now = self._now()
        await self._execute(
            "failed",
            [
                {
                    "run_key": trouble.place.run_key,
                    "first_seq": trouble.place.first_seq,
                    "error": trouble.error,
                    "due_at": micros(now + (trouble.retry_after or dt.timedelta())),
                    "dead_at": micros(now) if trouble.retry_after is None else None,
                }
                for trouble in troubles
            ],
        )

    async def backlog(self) -> Backlog:
        """Look at how much is owed."""
        asked = {"counted_max": COUNTED_MAX}
        rows, dead, oldest = await self._read(
            lambda connection: connection.execute(_SQL["backlog"], asked).fetchone()
        )
        oldest_at = None if oldest is None else moment(oldest)
        return Backlog(rows=rows, dead=dead, oldest_at=oldest_at, now=self._now())

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
        rows = await self._read(lambda connection: connection.execute(_SQL["dead_letters"], asked).fetchall())
        return [dead_letter_of(row) for row in rows]

    async def redrive(self, places: Sequence[Place]) -> int:
        """Let dead letters be tried again."""
        now = micros(self._now())
        return await self._execute("redrive", [(now, *place) for place in places])

    async def discard(self, places: Sequence[Place]) -> int:
        """Forget dead letters."""
        return await self._execute("discard", places)

    async def _execute(self, name: str, rows: Sequence[Any]) -> int:
        return await self._write(lambda connection: connection.executemany(_SQL[name], rows).rowcount)


class _Lowest:
    """The lowest rows of runs that can be claimed, and after which run to go on."""

    def __init__(self) -> None:
        self.free: list[tuple[bytes, int, int]] = []
        self.after = b""


def _lowest(connection: sqlite3.Connection, after: bytes, limit: int, now: dt.datetime) -> _Lowest:
    found, at = _Lowest(), micros(now)
    for _ in range(LOOKED_MAX):
        row = connection.execute(_SQL["next_lowest"], {"after": after, "now": at}).fetchone()
        if row is None:
            return found
        after = row[0]
        if row[3]:
            found.free.append(row[:3])
        if len(found.free) == limit:
            break
    found.after = after
    return found


def _owed(connection: sqlite3.Connection, run_key: bytes, attempts: int) -> Owed:
    namespace, run_id, workflow = connection.execute(_SQL["run"], (run_key,)).fetchone()
    rows = connection.execute(_SQL["rows"], (run_key, ROWS_MAX)).fetchall()
    return Owed(
        run_key=run_key,
        run=RunRef(namespace, run_id),
        workflow=workflow,
        attempts=attempts,
        since=moment(rows[0][3]),
        rows=tuple(OwedRow(first_seq=first, last_seq=last, size=size) for first, last, size, _ in rows),
    )
