"""Tables of projections of the memory twin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from tidewheel.journal.snapshot import NO_EVENT
from tidewheel.store.memory_snapshots import MemorySnapshots
from tidewheel.store.projections import Key, ProjectionTable, Reading, Row
from tidewheel.store.records import RunRecord, RunRef


class MemoryProjections:
    """Rows in dicts, by table and key; how far runs were read is kept with their snapshots."""

    def __init__(self, find: Callable[[RunRef], RunRecord | None], snapshots: MemorySnapshots) -> None:
        self._find = find
        self._snapshots = snapshots
        self.tables: defaultdict[str, dict[Key, Row]] = defaultdict(dict)

    async def prepare(self, table: ProjectionTable) -> None:
        """There is nothing to do for dicts."""

    async def empty(self, table: ProjectionTable) -> None:
        """Forget rows and watermarks."""
        self.tables[table.name].clear()
        for marks in self._snapshots.watermarks.values():
            marks.pop(table.projection, None)

    async def project(self, table: ProjectionTable, runs: Sequence[RunRef], reading: Reading) -> None:
        """Do *reading*, in one uninterrupted piece of code."""
        marks = self._snapshots.watermarks
        keys = {run: record.key for run in runs if (record := self._find(run)) is not None}
        seen = {run: marks[key].get(table.projection, NO_EVENT) for run, key in keys.items()}
        rows = self.tables[table.name]
        wanted = list(reading.wants(seen))
        written = reading.rows({key: rows[key] for key in wanted if key in rows})
        rows.update({row[: table.key_count]: row for row in written.rows})
        for run, seq in written.seen.items():
            marks[keys[run]][table.projection] = seq
