"""Users' projections: rows and watermarks are written together, once, on every store."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Mapping

import pytest

from tests.conformance.store.driving import Run
from tests.conformance.store.inside import Inside
from tidewheel.journal.errors import InvalidRequest
from tidewheel.store.memory import MemoryStore
from tidewheel.store.projections import Column, Key, ProjectionTable, Row, Written
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef

TABLE = ProjectionTable(
    projection="sales",
    name="order",  # a word of SQL's own
    columns=(
        Column("day", "text"),
        Column("shop", "integer"),
        Column("count", "integer"),
        Column("total", "real"),
        Column("is_open", "boolean"),
        Column("note", "text", is_nullable=True),
    ),
    key_count=2,
)
COLUMNS = tuple(column.name for column in TABLE.columns)


@dataclasses.dataclass
class Adding:
    """Adds one to the rows of *keys* for every run that has seen less than *upto*."""

    keys: list[Key]
    upto: int
    seen: Mapping[RunRef, int] = dataclasses.field(default_factory=dict)
    found: Mapping[Key, Row] = dataclasses.field(default_factory=dict)
    fails: bool = False

    def wants(self, seen: Mapping[RunRef, int]) -> Iterable[Key]:
        """Ask for all of the rows."""
        self.seen = dict(seen)
        return self.keys

    def rows(self, found: Mapping[Key, Row]) -> Written:
        """Add one."""
        self.found = dict(found)
        new = [run for run, seq in self.seen.items() if seq < self.upto]
        if not new:
            return Written([], {})
        rows = [(*key, found.get(key, (0, 0, 0))[2] + 1, 0.5, True, None) for key in self.keys]
        if self.fails:
            rows.append(("x", 1, 1, None, True, None))
        return Written(rows, dict.fromkeys(new, self.upto))


@pytest.fixture
async def prepared(store: Store) -> Store:
    """A store that has the table."""
    await store.projections.prepare(TABLE)
    return store


async def test_rows_and_watermarks_are_written_together(prepared: Store, run: Run) -> None:
    """The next one finds both, every value as it was; what was seen is not read again."""
    first, second, again = Adding([("mon", 1)], 3), Adding([("mon", 1), ("tue", 2)], 5), Adding([], 5)

    for reading in (first, second, again):
        await prepared.projections.project(TABLE, [run.ref], reading)

    assert (first.seen, first.found) == ({run.ref: -1}, {})
    assert second.seen == {run.ref: 3}
    assert second.found == {("mon", 1): ("mon", 1, 1, 0.5, True, None)}
    assert again.seen == {run.ref: 5}
    look = Adding([("mon", 1), ("tue", 2)], -1)
    await prepared.projections.project(TABLE, [run.ref], look)
    assert {key: row[2] for key, row in look.found.items()} == {("mon", 1): 2, ("tue", 2): 1}


async def test_runs_that_are_not_there_are_not_read(prepared: Store, run: Run) -> None:
    """They were retired; the others of the batch are read."""
    reading = Adding([("mon", 1)], 3)

    await prepared.projections.project(TABLE, [RunRef("default", "gone"), run.ref], reading)

    assert reading.seen == {run.ref: -1}


async def test_if_one_cannot_be_written_neither_is(inside: Inside, prepared: Store, run: Run) -> None:
    """A row that the database refuses takes the watermark back with it."""
    if isinstance(prepared, MemoryStore):
        return  # dicts refuse nothing

    with pytest.raises(Exception, match=r"(?i)null"):
        await prepared.projections.project(TABLE, [run.ref], Adding([("mon", 1)], 3, fails=True))

    after = Adding([("mon", 1)], -1)
    await prepared.projections.project(TABLE, [run.ref], after)
    assert (after.seen, after.found) == ({run.ref: -1}, {})


async def test_each_projection_has_its_own_watermark(prepared: Store, run: Run) -> None:
    """Even over the same table."""
    other = ProjectionTable(
        projection="other", name=TABLE.name, columns=TABLE.columns, key_count=TABLE.key_count
    )
    await prepared.projections.project(TABLE, [run.ref], Adding([("mon", 1)], 3))
    reading = Adding([("mon", 1)], 3)

    await prepared.projections.project(other, [run.ref], reading)

    assert reading.seen == {run.ref: -1}
    assert reading.found[("mon", 1)][2] == 1


async def test_many_who_add_to_one_row_lose_nothing(prepared: Store) -> None:
    """Also the first time, when there is no row that could be locked."""
    runs = [Run(prepared, f"r-{number}") for number in range(20)]
    for run in runs:
        await run.start()

    await asyncio.gather(
        *(prepared.projections.project(TABLE, [run.ref], Adding([("mon", 1)], 1)) for run in runs)
    )

    look = Adding([("mon", 1)], -1)
    await prepared.projections.project(TABLE, [runs[0].ref], look)
    assert look.found[("mon", 1)][2] == 20


async def test_a_table_is_made_once_and_may_have_more_columns(inside: Inside, prepared: Store) -> None:
    """Making it again does nothing; a table that lacks a column is refused, with what to do."""
    fewer = ProjectionTable(
        projection="sales", name=TABLE.name, columns=TABLE.columns[:3], key_count=TABLE.key_count
    )
    more = ProjectionTable(
        projection="sales",
        name=TABLE.name,
        columns=(*TABLE.columns, Column("extra", "real")),
        key_count=TABLE.key_count,
    )
    await prepared.projections.prepare(TABLE)
    await prepared.projections.prepare(fewer)

    if isinstance(prepared, MemoryStore):
        return
    with pytest.raises(InvalidRequest, match="ALTER TABLE order ADD COLUMN extra DOUBLE PRECISION"):
        await prepared.projections.prepare(more)


async def test_emptied_it_has_no_rows_and_has_seen_nothing(prepared: Store, run: Run) -> None:
    """Another projection's watermarks stay."""
    other = ProjectionTable(
        projection="other", name="others", columns=TABLE.columns, key_count=TABLE.key_count
    )
    await prepared.projections.prepare(other)
    await prepared.projections.project(TABLE, [run.ref], Adding([("mon", 1)], 3))
    await prepared.projections.project(other, [run.ref], Adding([("mon", 1)], 3))

    await prepared.projections.empty(TABLE)

    emptied, kept = Adding([("mon", 1)], -1), Adding([("mon", 1)], -1)
    await prepared.projections.project(TABLE, [run.ref], emptied)
    await prepared.projections.project(other, [run.ref], kept)
    assert (emptied.seen, emptied.found) == ({run.ref: -1}, {})
    assert (kept.seen, len(kept.found)) == ({run.ref: 3}, 1)
