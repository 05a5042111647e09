"""Snapshots in a SQLite file: questions go to the readers, everything else to the one thread that writes.

A file has one writer at a time and purges in the same transaction, so nothing is ever left of a run that is
gone.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from tidewheel.journal.snapshot import RunSnapshot, StepSnapshot
from tidewheel.store.columns import micros
from tidewheel.store.records import RunRef
from tidewheel.store.snapshot_json import from_text, to_text
from tidewheel.store.snapshots import INLINE_STEPS_MAX, Asked, Behind, Change, Held, Page, unseen
from tidewheel.store.statements import statements

_SQL = statements("sqlite", "snapshots")
#: Less than any key.
_BEFORE_ALL = b""

T = TypeVar("T")


class Do(Protocol):
    """Executes something over a connection, in one of the store's threads."""

    def __call__(self, work: Callable[[sqlite3.Connection], T], /) -> Awaitable[T]:
        """Return what *work* returns."""


class SqliteSnapshots:
    """Snapshots of the runs of a file; *read* and *write* are the store's."""

    def __init__(self, read: Do, write: Do, now: Callable[[], dt.datetime]) -> None:
        self._read = read
        self._write = write
        self._now = now

    async def load(self, asked: Sequence[Asked]) -> list[Held | None]:
        """Read snapshots to go on from, all as of one moment."""
        return await self._read(lambda connection: [_held(connection, one) for one in asked])

    async def save(self, changes: Sequence[Change]) -> list[bool]:
        """Write those whose predecessors are still there, in one transaction."""
        return await self._write(
            lambda connection: [_save(connection, change, self._now()) for change in changes]
        )

    async def read(self, run: RunRef) -> RunSnapshot | None:
        """Read a whole snapshot."""
        return await self._read(lambda connection: _whole(connection, run))

    async def look(
        self,
        namespace: str,
        *,
        after: bytes | None,
        limit: int,
        quiet_since: dt.datetime,
        projections: Sequence[str] = (),
    ) -> Page:
        """Look which of the next *limit* runs are behind."""

        def question(connection: sqlite3.Connection) -> Page:
            begin = _BEFORE_ALL if after is None else after
            keys = connection.execute(_SQL["page"], (namespace, begin, limit)).fetchall()
            if not keys:
                return Page([], None)
            asked = {
                "namespace": namespace,
                "after": begin,
                "upto": keys[-1][0],
                "quiet_since": micros(quiet_since),
                "projections": msgspec.json.encode(list(projections)).decode(),
            }
            found = connection.execute(_SQL["behind"], asked).fetchall()
            behind = [Behind(RunRef(namespace, run_id), public, seen) for run_id, public, seen in found]
            return Page(behind, keys[-1][0] if len(keys) == limit else None)

        return await self._read(question)

    async def attend(self, namespace: str, member: str, lease_s: float) -> list[str]:
        """Say that *member* is alive, and return all that are."""

        def work(connection: sqlite3.Connection) -> list[str]:
            now = self._now()
            until = micros(now + dt.timedelta(seconds=lease_s))
            connection.execute(_SQL["attend"], (namespace, member, until))
            connection.execute(_SQL["forget_dead"], (namespace, micros(now)))
            return [name for (name,) in connection.execute(_SQL["members"], (namespace,))]

        return await self._write(work)

    async def leave(self, namespace: str, member: str) -> None:
        """Say that *member* is gone."""
        await self._write(lambda connection: connection.execute(_SQL["leave"], (namespace, member)).rowcount)


def _held(connection: sqlite3.Connection, asked: Asked) -> Held | None:
    row = connection.execute(_SQL["load"], asked.run).fetchone()
    if row is None:
        return None
    key, text, revision, step_count = row
    if text is None:
        return unseen(key, asked.run)
    snapshot = from_text(text, RunSnapshot)
    later: dict[str, int] = {}
    if step_count > INLINE_STEPS_MAX:
        rows = [
            found
            for step_id in asked.step_ids
            for found in connection.execute(_SQL["later_step"], (key, step_id))
        ]
        steps = [(place, from_text(step, StepSnapshot)) for place, step in sorted(rows)]
        later = {step.step_id: place for place, step in steps}
        snapshot = replace(snapshot, steps=(*snapshot.steps, *(step for _, step in steps)))
    return Held(
        key=key, run=asked.run, snapshot=snapshot, revision=revision, step_count=step_count, later=later
    )


def _whole(connection: sqlite3.Connection, run: RunRef) -> RunSnapshot | None:
    row = connection.execute(_SQL["load"], run).fetchone()
    if row is None or row[1] is None:
        return None
    snapshot = from_text(row[1], RunSnapshot)
    later = sorted(connection.execute(_SQL["later_steps"], (row[0],)))
    steps = (from_text(step, StepSnapshot) for _, step in later)
    return replace(snapshot, steps=(*snapshot.steps, *steps))


def _save(connection: sqlite3.Connection, change: Change, now: dt.datetime) -> bool:
    before, snapshot = change.before, change.snapshot
    values: dict[str, Any] = {
        "run_key": before.key,
        "namespace": before.run.namespace,
        "run_id": before.run.run_id,
        "workflow": snapshot.workflow,
        "status": snapshot.status,
        "last_event_seq": snapshot.last_event_seq,
        "stale": snapshot.stale,
        "revision": change.revision,
        "step_count": change.step_count,
        "snapshot": to_text(snapshot),
        "updated_at": micros(now),
        "before_seq": before.snapshot.last_event_seq,
        "before_revision": before.revision,
    }
    written = connection.execute(_SQL["add" if before.is_new else "change"], values).rowcount == 1
    if written:
        if change.replaces:
            connection.execute(_SQL["delete_steps"], (before.key,))
        rows = [(before.key, step.step_id, place, to_text(step)) for place, step in change.later]
        connection.executemany(_SQL["put_step"], rows)
    return written
