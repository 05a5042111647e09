"""The memory twin of the outbox: the same rules over lists."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING

import msgspec

from tidewheel.store.columns import micros
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
)
from tidewheel.store.passages import checksum

if TYPE_CHECKING:
    from tidewheel.store.memory_rows import MemoryRows


class OutboxRow(msgspec.Struct, kw_only=True):
    """What is owed for one append, and how telling it went so far."""

    first_seq: int
    last_seq: int
    created_at: dt.datetime
    due_at: dt.datetime
    attempts: int = 0
    claimed_by: str | None = None
    claimed_until: dt.datetime | None = None
    first_error: str | None = None
    last_error: str | None = None
    dead_at: dt.datetime | None = None

    def can_be_claimed(self, now: dt.datetime) -> bool:
        """Tell whether it is due, as what never failed always is, and nobody's."""
        is_free = self.claimed_until is None or self.claimed_until <= now
        is_due = self.attempts == 0 or self.due_at <= now
        return self.dead_at is None and is_due and is_free


class MemoryOutbox:
    """The outbox of *rows*, by the clock *now*."""

    def __init__(self, rows: MemoryRows, now: Callable[[], dt.datetime]) -> None:
        self._rows = rows
        self._now = now

    async def claim(self, relay: str, *, after: bytes, limit: int, lease_s: float) -> Claimed:
        """Claim rows of at most *limit* runs after *after*."""
        now = self._now()
        keys = sorted(key for key, rows in self._rows.outbox.items() if rows)
        keys = keys[bisect_right(keys, after) :]
        owed: list[Owed] = []
        last_key = b""
        for key in keys[:LOOKED_MAX]:
            lowest = self._rows.outbox[key][0]
            if lowest.can_be_claimed(now):
                lowest.claimed_by, lowest.claimed_until = relay, now + dt.timedelta(seconds=lease_s)
                owed.append(self._owed(key, lowest))
            last_key = key
            if len(owed) == limit:
                break
        is_over = not keys or last_key == keys[-1]
        return Claimed(owed=owed, after=b"" if is_over else last_key, now=now)

    def _owed(self, key: bytes, lowest: OutboxRow) -> Owed:
        run = self._rows.runs[key]
        sizes = {passage.first_seq: len(passage.data) for passage in self._rows.journals[key]}
        alive = takewhile(lambda row: row.dead_at is None, self._rows.outbox[key])
        return Owed(
            run_key=key,
            run=run.ref,
            workflow=run.workflow,
            attempts=lowest.attempts,
            since=lowest.created_at,
            rows=tuple(
                OwedRow(first_seq=row.first_seq, last_seq=row.last_seq, size=sizes.get(row.first_seq, 0))
                for row in islice(alive, ROWS_MAX)
            ),
        )

    async def passages(self, places: Sequence[Place]) -> list[StoredPassage | None]:
        """Read rows of the journal."""
        return [self._passage(place) for place in places]

    def _passage(self, place: Place) -> StoredPassage | None:
        for one in self._rows.journals.get(place.run_key, ()):
            if one.first_seq == place.first_seq:
                row = (one.first_seq, one.last_seq, micros(one.at), one.codec, one.data, checksum(one.data))
                return StoredPassage(row=row, public=one.public)
        return None

    async def renew(self, relay: str, run_keys: Sequence[bytes], lease_s: float) -> None:
        """Prolong leases."""
        until = self._now() + dt.timedelta(seconds=lease_s)
        for row in self._claimed(relay, run_keys):
            row.claimed_until = until

    async def release(self, relay: str, run_keys: Sequence[bytes]) -> None:
        """Give up leases."""
        for row in self._claimed(relay, run_keys):
            row.claimed_by = row.claimed_until = None

    def _claimed(self, relay: str, run_keys: Sequence[bytes]) -> Iterator[OutboxRow]:
        for key in run_keys:
            yield from (row for row in self._rows.outbox.get(key, ()) if row.claimed_by == relay)

    async def sent(self, places: Sequence[Place]) -> None:
        """Forget rows that were told."""
        for place in places:
            self._forget(place)

    async def failed(self, troubles: Sequence[Trouble]) -> None:
        """Count failures."""
        now = self._now()
        for trouble in troubles:
            row = self._find(trouble.place)
            if row is not None and row.dead_at is None:
                row.attempts += 1
                row.claimed_by = row.claimed_until = None
                row.first_error = row.first_error or trouble.error
                row.last_error = trouble.error
                row.dead_at = now if trouble.retry_after is None else None
                row.due_at = now + (trouble.retry_after or dt.timedelta())

    async def backlog(self) -> Backlog:
        """Look at how much is owed."""
        runs = (self._rows.outbox[key] for key in sorted(self._rows.outbox))
        rows = list(islice(chain.from_iterable(runs), COUNTED_MAX))
        return Backlog(
            rows=len(rows),
            dead=sum(row.dead_at is not None for row in rows),
            oldest_at=min((row.created_at for row in rows), default=None),
            now=self._now(),
        )

    async def dead_letters(self, which: DeadLetterFilter) -> list[DeadLetter]:
        """List dead letters."""
        found: list[DeadLetter] = []
        for key in sorted(self._rows.outbox):
            run, rows = self._rows.runs[key], self._rows.outbox[key]
            is_asked_for = (
                run.namespace == which.namespace
                and which.run_id in (None, run.run_id)
                and which.workflow in (None, run.workflow)
            )
            for number, row in enumerate(rows):
                place = Place(key, row.first_seq)
                if is_asked_for and row.dead_at is not None and (which.after is None or place > which.after):
                    found.append(
                        DeadLetter(
                            place=place,
                            run=run.ref,
                            workflow=run.workflow,
                            last_seq=row.last_seq,
                            attempts=row.attempts,
                            first_error=row.first_error or "",
                            last_error=row.last_error or "",
                            created_at=row.created_at,
                            dead_at=row.dead_at,
                            waiting=len(rows) - number - 1,
                        )
                    )
        return found[: which.limit]

    async def redrive(self, places: Sequence[Place]) -> int:
        """Let dead letters be tried again."""
        dead = [row for row in map(self._find, places) if row is not None and row.dead_at is not None]
        for row in dead:
            row.attempts, row.due_at = 0, self._now()
            row.first_error = row.last_error = row.dead_at = None
        return len(dead)

    async def discard(self, places: Sequence[Place]) -> int:
        """Forget dead letters."""
        found = [(place, self._find(place)) for place in places]
        dead = [place for place, row in found if row is not None and row.dead_at is not None]
        for place in dead:
            self._forget(place)
        return len(dead)

    def _find(self, place: Place) -> OutboxRow | None:
        for row in self._rows.outbox.get(place.run_key, ()):
            if row.first_seq == place.first_seq:
                return row
        return None

    def _forget(self, place: Place) -> None:
        rows = self._rows.outbox.get(place.run_key)
        if rows is not None:
            rows[:] = [row for row in rows if row.first_seq != place.first_seq]
