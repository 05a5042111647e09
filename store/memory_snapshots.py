"""Snapshots of the memory twin: the same rules over dicts."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from tidewheel.journal.snapshot import NO_EVENT, RunSnapshot, StepSnapshot
from tidewheel.store.records import RunRecord, RunRef
from tidewheel.store.snapshots import Asked, Behind, Change, Held, Page, unseen


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of a run beside its later steps."""

    snapshot: RunSnapshot
    revision: int
    step_count: int


class Runs:
    """What a twin knows of runs beside their snapshots."""

    def __init__(
        self,
        find: Callable[[RunRef], RunRecord | None],
        ordered: Callable[[], list[RunRecord]],
        is_owed: Callable[[bytes], bool],
        now: Callable[[], dt.datetime],
    ) -> None:
        self.find = find
        #: All runs, by their keys.
        self.ordered = ordered
        #: Whether the event bus has not been told of all of a run's events.
        self.is_owed = is_owed
        self.now = now


class MemorySnapshots:
    """Snapshots in dicts, for one event loop."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self.rows: dict[bytes, Row] = {}
        self.later: defaultdict[bytes, dict[str, tuple[int, StepSnapshot]]] = defaultdict(dict)
        #: How far projections have read, by run.
        self.watermarks: defaultdict[bytes, dict[str, int]] = defaultdict(dict)
        self._members: dict[tuple[str, str], dt.datetime] = {}

    def forget(self, key: bytes) -> None:
        """Delete all that is kept of a run."""
        for rows in (self.rows, self.later, self.watermarks):
            rows.pop(key, None)

    async def load(self, asked: Sequence[Asked]) -> list[Held | None]:
        """Read snapshots to go on from."""
        return [self._held(one) for one in asked]

    def _held(self, asked: Asked) -> Held | None:
        run = self._runs.find(asked.run)
        if run is None:
            return None
        row = self.rows.get(run.key)
        if row is None:
            return unseen(run.key, asked.run)
        rows = self.later[run.key]
        found = sorted((rows[step_id] for step_id in set(asked.step_ids) & rows.keys()), key=lambda at: at[0])
        steps = (*row.snapshot.steps, *(step for _, step in found))
        return Held(
            key=run.key,
            run=asked.run,
            snapshot=replace(row.snapshot, steps=steps),
            revision=row.revision,
            step_count=row.step_count,
            later={step.step_id: place for place, step in found},
        )

    async def save(self, changes: Sequence[Change]) -> list[bool]:
        """Write those whose predecessors are still there."""
        return [self._save(change) for change in changes]

    def _save(self, change: Change) -> bool:
        before = change.before
        row = self.rows.get(before.key)
        if row is None or before.is_new:
            if not (row is None and before.is_new):
                return False
        elif (row.snapshot.last_event_seq, row.revision) != (before.snapshot.last_event_seq, before.revision):
            return False
        self.rows[before.key] = Row(
            snapshot=change.snapshot, revision=change.revision, step_count=change.step_count
        )
        if change.replaces:
            self.later.pop(before.key, None)
        if change.later:
            self.later[before.key].update({step.step_id: (place, step) for place, step in change.later})
        return True

    async def read(self, run: RunRef) -> RunSnapshot | None:
        """Read a whole snapshot."""
        record = self._runs.find(run)
        row = None if record is None else self.rows.get(record.key)
        if record is None or row is None:
            return None
        later = sorted(self.later[record.key].values(), key=lambda at: at[0])
        return replace(row.snapshot, steps=(*row.snapshot.steps, *(step for _, step in later)))

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
        runs = [
            run
            for run in self._runs.ordered()
            if run.namespace == namespace and (after is None or run.key > after)
        ][:limit]
        behind = [
            Behind(run.ref, _public_seq(run), self._seen(run.key))
            for run in runs
            if run.updated_at < quiet_since
            and not self._runs.is_owed(run.key)
            and self._is_behind(run, projections)
        ]
        return Page(behind, runs[-1].key if len(runs) == limit else None)

    def _is_behind(self, run: RunRecord, projections: Sequence[str]) -> bool:
        row, seq = self.rows.get(run.key), _public_seq(run)
        marks = self.watermarks[run.key]
        return (
            self._seen(run.key) != seq
            or (row is not None and row.snapshot.stale)
            or any(marks.get(name, NO_EVENT) != seq for name in projections)
        )

    def _seen(self, key: bytes) -> int:
        row = self.rows.get(key)
        return NO_EVENT if row is None else row.snapshot.last_event_seq

    async def attend(self, namespace: str, member: str, lease_s: float) -> list[str]:
        """Say that *member* is alive, and return all that are."""
        now = self._runs.now()
        self._members[namespace, member] = now + dt.timedelta(seconds=lease_s)
        self._members = {who: until for who, until in self._members.items() if until > now}
        return sorted(name for of, name in self._members if of == namespace)

    async def leave(self, namespace: str, member: str) -> None:
        """Say that *member* is gone."""
        self._members.pop((namespace, member), None)


def _public_seq(run: RunRecord) -> int:
    return NO_EVENT if run.prev_seq is None else run.prev_seq
