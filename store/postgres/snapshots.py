"""Snapshots in Postgres: many runs in one statement; the statements are in ``sql/snapshots.sql``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
import psycopg
from msgspec.structs import replace

from tidewheel.journal.snapshot import RunSnapshot, StepSnapshot
from tidewheel.store.columns import micros
from tidewheel.store.postgres.arrays import BigintArray, ByteaArray, TextArray
from tidewheel.store.records import RunRef
from tidewheel.store.snapshot_json import from_text, to_text
from tidewheel.store.snapshots import INLINE_STEPS_MAX, Asked, Behind, Change, Held, Page, unseen
from tidewheel.store.statements import statements

_SQL = statements("postgres", "snapshots")
#: Less than any key.
_BEFORE_ALL = b""

T = TypeVar("T")
Connection = psycopg.AsyncConnection[Any]


class With(Protocol):
    """Lends a connection to something that may be repeated."""

    def __call__(self, work: Callable[[Connection], Awaitable[T]], /) -> Awaitable[T]:
        """Return what *work* returns."""


class PostgresSnapshots:
    """Snapshots of the runs of a database; *lend* is the store's, *now* the time where a test gives it."""

    def __init__(self, lend: With, now: Callable[[], int | None]) -> None:
        self._lend = lend
        self._now = now

    async def load(self, asked: Sequence[Asked]) -> list[Held | None]:
        """Read snapshots to go on from, all as of one moment."""
        found: list[Held | None] = [None] * len(asked)
        parameters = {
            "namespaces": TextArray.of([one.run.namespace for one in asked]),
            "run_ids": TextArray.of([one.run.run_id for one in asked]),
            "step_ids": TextArray.of([_list_text(one.step_ids) for one in asked]),
            "inline_max": INLINE_STEPS_MAX,
        }
        for place, *row in await self._rows("load", parameters):
            found[place - 1] = _held(asked[place - 1].run, *row)
        return found

    async def save(self, changes: Sequence[Change]) -> list[bool]:
        """Write those whose predecessors are still there; one that replaces has a transaction of its own."""
        # In the order of their keys, so that no two projectors wait for each other.
        plain = sorted((one for one in changes if not one.replaces), key=lambda one: one.before.key)
        written: set[bytes] = set()
        if plain:
            parameters = self._parameters(plain) | _step_parameters(plain)
            written = {key for (key,) in await self._rows("save", parameters)}
        for change in changes:
            if change.replaces and await self._lend(self._replacing(change)):
                written.add(change.before.key)
        return [change.before.key in written for change in changes]

    def _replacing(self, change: Change) -> Callable[[Connection], Awaitable[bool]]:
        async def work(connection: Connection) -> bool:
            async with connection.transaction():
                parameters = self._parameters([change]) | _step_parameters([])
                cursor = await connection.execute(_SQL["save"], parameters, prepare=True, binary=True)
                if not await cursor.fetchall():
                    return False
                await connection.execute(_SQL["delete_steps"], {"run_key": change.before.key})
                await connection.execute(_SQL["put_steps"], _step_parameters([change]))
                return True

        return work

    def _parameters(self, changes: Sequence[Change]) -> dict[str, Any]:
        befores, snapshots = [one.before for one in changes], [one.snapshot for one in changes]
        return {
            "run_keys": ByteaArray.of([before.key for before in befores]),
            "namespaces": TextArray.of([before.run.namespace for before in befores]),
            "run_ids": TextArray.of([before.run.run_id for before in befores]),
            "workflows": TextArray.of([snapshot.workflow for snapshot in snapshots]),
            "statuses": TextArray.of([snapshot.status for snapshot in snapshots]),
            "last_event_seqs": BigintArray.of([snapshot.last_event_seq for snapshot in snapshots]),
            "stales": BigintArray.of([int(snapshot.stale) for snapshot in snapshots]),
            "revisions": BigintArray.of([one.revision for one in changes]),
            "step_counts": BigintArray.of([one.step_count for one in changes]),
            "snapshots": TextArray.of([to_text(snapshot) for snapshot in snapshots]),
            "before_seqs": BigintArray.of(
                [None if before.is_new else before.snapshot.last_event_seq for before in befores]
            ),
            "before_revisions": BigintArray.of([before.revision for before in befores]),
            "now": self._now(),
        }

    async def read(self, run: RunRef) -> RunSnapshot | None:
        """Read a whole snapshot."""
        rows = await self._rows("read", run._asdict())
        if not rows:
            return None
        ((text, later),) = rows
        snapshot = from_text(text, RunSnapshot)
        steps = (
            () if later is None else (from_text(step, StepSnapshot) for step in msgspec.json.decode(later))
        )
        return replace(snapshot, steps=(*snapshot.steps, *steps))

    async def look(
        self,
        namespace: str,
        *,
        after: bytes | None,
        limit: int,
        quiet_since: dt.datetime,
        projections: Sequence[str] = (),
    ) -> Page:
        """Look which of the next *limit* runs are behind, and delete what is left of those that are gone."""
        begin = _BEFORE_ALL if after is None else after
        asked = {
            "namespace": namespace,
            "after": begin,
            "limit_max": limit,
            "quiet_since": micros(quiet_since),
            "projections": TextArray.of(list(projections)),
        }
        next_after = None
        behind = []
        for run_id, key, public_seq, seen_seq in await self._rows("look", asked):
            if run_id is None:
                next_after = key
            else:
                behind.append(Behind(RunRef(namespace, run_id), public_seq, seen_seq))
        await self._execute("delete_left", {"after": begin, "upto": next_after, "limit_max": limit})
        return Page(behind, next_after)

    async def attend(self, namespace: str, member: str, lease_s: float) -> list[str]:
        """Say that *member* is alive, and return all that are."""
        asked = {
            "namespace": namespace,
            "member": member,
            "lease": round(lease_s * 1_000_000),
            "now": self._now(),
        }
        others = [name for (name,) in await self._rows("attend", asked)]
        return sorted([member, *others])

    async def leave(self, namespace: str, member: str) -> None:
        """Say that *member* is gone."""
        await self._execute("leave", {"namespace": namespace, "member": member})

    async def _rows(self, name: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        async def work(connection: Connection) -> list[tuple[Any, ...]]:
            cursor = await connection.execute(_SQL[name], parameters, prepare=True, binary=True)
            return await cursor.fetchall()

        return await self._lend(work)

    async def _execute(self, name: str, parameters: dict[str, Any]) -> None:
        async def work(connection: Connection) -> None:
            await connection.execute(_SQL[name], parameters, prepare=True)

        await self._lend(work)


def _held(
    run: RunRef, key: bytes, text: str | None, revision: int, step_count: int, later_text: str | None
) -> Held:
    if text is None:
        return unseen(key, run)
    snapshot = from_text(text, RunSnapshot)
    later: dict[str, int] = {}
    if later_text is not None:
        steps = [(place, from_text(step, StepSnapshot)) for place, step in msgspec.json.decode(later_text)]
        later = {step.step_id: place for place, step in steps}
        snapshot = replace(snapshot, steps=(*snapshot.steps, *(step for _, step in steps)))
    return Held(key=key, run=run, snapshot=snapshot, revision=revision, step_count=step_count, later=later)


def _step_parameters(changes: Sequence[Change]) -> dict[str, Any]:
    rows = [(change.before.key, place, step) for change in changes for place, step in change.later]
    return {
        "step_run_keys": ByteaArray.of([key for key, _, _ in rows]),
        "step_ids": TextArray.of([step.step_id for _, _, step in rows]),
        "places": BigintArray.of([place for _, place, _ in rows]),
        "steps": TextArray.of([to_text(step) for _, _, step in rows]),
    }


def _list_text(step_ids: Any) -> str:
    return msgspec.json.encode(list(step_ids)).decode()
