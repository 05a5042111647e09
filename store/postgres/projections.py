"""Tables of projections in Postgres: one transaction for each batch, and one at a time for each projection.

A lock of the projection's name is held until the commit, so that two projectors that add to the same row of a
table (a day's sales) do not both begin from what it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from tidewheel.journal.snapshot import NO_EVENT
from tidewheel.store.postgres.arrays import BigintArray, ByteaArray, TextArray
from tidewheel.store.postgres.snapshots import With
from tidewheel.store.projections import (
    SQL_TYPES,
    Column,
    ProjectionTable,
    Reading,
    Row,
    check_columns,
    conflict_clause,
    create_statement,
    empty_statement,
    listed,
    read_row,
)
from tidewheel.store.records import RunRef
from tidewheel.store.statements import statements

_SQL = statements("postgres", "projections")

Connection = psycopg.AsyncConnection[Any]


class PostgresProjections:
    """See the module; *lend* is the store's."""

    def __init__(self, lend: With) -> None:
        self._lend = lend

    async def prepare(self, table: ProjectionTable) -> None:
        """Make the table if it is not there: to make one needs a right that using it does not."""

        async def work(connection: Connection) -> None:
            async with connection.transaction():
                await connection.execute(_SQL["lock"], {"projection": table.projection})
                cursor = await connection.execute(_SQL["columns"], {"name": table.name})
                there = [name for (name,) in await cursor.fetchall()]
                if there:
                    check_columns(table, there)
                else:
                    await connection.execute(create_statement(table).encode())

        await self._lend(work)

    async def empty(self, table: ProjectionTable) -> None:
        """Delete rows and watermarks; DELETE, since TRUNCATE needs a right that using the table does not."""

        async def work(connection: Connection) -> None:
            async with connection.transaction():
                await connection.execute(_SQL["lock"], {"projection": table.projection})
                await connection.execute(empty_statement(table).encode())
                await connection.execute(_SQL["forget"], {"projection": table.projection})

        await self._lend(work)

    async def project(self, table: ProjectionTable, runs: Sequence[RunRef], reading: Reading) -> None:
        """Do *reading* in a transaction, which may be repeated."""

        async def work(connection: Connection) -> None:
            async with connection.transaction():
                await connection.execute(_SQL["lock"], {"projection": table.projection})
                await _project(connection, table, runs, reading)

        await self._lend(work)


async def _project(
    connection: Connection, table: ProjectionTable, runs: Sequence[RunRef], reading: Reading
) -> None:
    asked = {
        "projection": table.projection,
        "namespaces": TextArray.of([run.namespace for run in runs]),
        "run_ids": TextArray.of([run.run_id for run in runs]),
    }
    cursor = await connection.execute(_SQL["marks"], asked)
    keys, seen = {}, {}
    for place, run_key, seq in await cursor.fetchall():
        keys[runs[place - 1]], seen[runs[place - 1]] = run_key, NO_EVENT if seq is None else seq
    wanted = list(dict.fromkeys(reading.wants(seen)))
    found = {}
    if wanted:
        arrays = _unnested(table.key)
        select = (
            f'SELECT {listed(table.columns)} FROM "{table.name}"'  # noqa: S608 - names were checked when it was registered
            f" WHERE ({listed(table.key)}) IN (SELECT * FROM {arrays})"
        )
        cursor = await connection.execute(select.encode(), _turned(table.key, wanted))
        for values in await cursor.fetchall():
            found[tuple(values[: table.key_count])] = read_row(table, values)
    written = reading.rows(found)
    if written.rows:
        insert = (
            f'INSERT INTO "{table.name}" ({listed(table.columns)})'  # noqa: S608 - as above
            f" SELECT * FROM {_unnested(table.columns)} {conflict_clause(table)}"
        )
        await connection.execute(insert.encode(), _turned(table.columns, written.rows))
    if written.seen:
        marks = {
            "projection": table.projection,
            "run_keys": ByteaArray.of([keys[run] for run in written.seen]),
            "seqs": BigintArray.of(list(written.seen.values())),
        }
        await connection.execute(_SQL["put_marks"], marks)


def _unnested(columns: Sequence[Column]) -> str:
    """Return the arrays of *columns* as rows."""
    arrays = (f"%s::{SQL_TYPES[column.kind].lower()}[]" for column in columns)
    return f"unnest({', '.join(arrays)})"


def _turned(columns: Sequence[Column], rows: Sequence[Row]) -> list[list[Any]]:
    """Return rows as one list for each column."""
    return [[row[place] for row in rows] for place in range(len(columns))]
