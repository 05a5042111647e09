"""Tables of projections in a SQLite file: everything is done by the one thread that writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from tidewheel.journal.snapshot import NO_EVENT
from tidewheel.store.projections import (
    ProjectionTable,
    Reading,
    check_columns,
    conflict_clause,
    create_statement,
    empty_statement,
    listed,
    read_row,
)
from tidewheel.store.records import RunRef
from tidewheel.store.sqlite.snapshots import Do
from tidewheel.store.statements import statements

_SQL = statements("sqlite", "projections")


class SqliteProjections:
    """See the module; *write* is the store's."""

    def __init__(self, write: Do) -> None:
        self._write = write

    async def prepare(self, table: ProjectionTable) -> None:
        """Make the table if it is not there."""

        def work(connection: sqlite3.Connection) -> None:
            there = [name for (name,) in connection.execute(_SQL["columns"], (table.name,))]
            if there:
                check_columns(table, there)
            else:
                connection.execute(create_statement(table))

        await self._write(work)

    async def empty(self, table: ProjectionTable) -> None:
        """Delete rows and watermarks."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(empty_statement(table))
            connection.execute(_SQL["forget"], (table.projection,))

        await self._write(work)

    async def project(self, table: ProjectionTable, runs: Sequence[RunRef], reading: Reading) -> None:
        """Do *reading* in a transaction; what others of this process write may share it."""
        await self._write(lambda connection: _project(connection, table, runs, reading))


def _project(
    connection: sqlite3.Connection, table: ProjectionTable, runs: Sequence[RunRef], reading: Reading
) -> None:
    keys: dict[RunRef, bytes] = {}
    seen: dict[RunRef, int] = {}
    for run in runs:
        row = connection.execute(_SQL["mark"], (table.projection, *run)).fetchone()
        if row is not None:
            keys[run], seen[run] = row[0], NO_EVENT if row[1] is None else row[1]
    found = {}
    # Names were checked when the projection was registered (`check_identifier`).
    where = " AND ".join(f'"{column.name}" = ?' for column in table.key)
    select = f'SELECT {listed(table.columns)} FROM "{table.name}" WHERE {where}'  # noqa: S608 - as above
    for key in reading.wants(seen):
        values = connection.execute(select, key).fetchone()
        if values is not None:
            found[key] = read_row(table, values)
    written = reading.rows(found)
    marks = ", ".join("?" * len(table.columns))
    insert = f'INSERT INTO "{table.name}" ({listed(table.columns)}) VALUES ({marks})'  # noqa: S608 - as above
    connection.executemany(f"{insert} {conflict_clause(table)}", written.rows)
    connection.executemany(
        _SQL["put_mark"], [(keys[run], table.projection, seq) for run, seq in written.seen.items()]
    )
