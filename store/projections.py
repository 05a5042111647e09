"""Tables of users' own projections: rows that are kept from public events, and how far each run was read.

Rule: rows and watermarks are written in one transaction, and nobody else writes those of the same projection
meanwhile. So an event has its effect exactly once, whoever delivers it how often.

Every adapter passes one suite, ``tests/conformance/store/test_projections.py``. All methods raise
``StoreUnavailable``. What an event does to a row is the user's; which events count is the projector's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from tidewheel.journal.errors import InvalidRequest
from tidewheel.store.records import RunRef

Kind: TypeAlias = Literal["text", "integer", "real", "boolean"]
#: The values of the key's columns, and those of all columns, the key's first.
Key: TypeAlias = tuple[Any, ...]
Row: TypeAlias = tuple[Any, ...]

#: What both databases understand.
SQL_TYPES: Final[dict[Kind, str]] = {
    "text": "TEXT",
    "integer": "BIGINT",
    "real": "DOUBLE PRECISION",
    "boolean": "BOOLEAN",
}
_IDENTIFIER: Final = re.compile(r"[a-z_][a-z0-9_]{0,59}")
#: What our own tables begin with.
_OURS: Final = "tidewheel_"


class Column(NamedTuple):
    """A column of a projection's table."""

    name: str
    kind: Kind
    is_nullable: bool = False


class ProjectionTable(msgspec.Struct, frozen=True, kw_only=True):
    """The table of a projection; its first ``key_count`` columns are its key."""

    projection: str
    name: str
    columns: tuple[Column, ...]
    key_count: int

    @property
    def key(self) -> tuple[Column, ...]:
        """The columns of the key."""
        return self.columns[: self.key_count]


class Written(NamedTuple):
    """What a reading gave: rows that are new or changed, and the latest event that was read of each run."""

    rows: Sequence[Row]
    seen: Mapping[RunRef, int]


class Reading(Protocol):
    """What is done inside the transaction. It may be done again from the start."""

    def wants(self, seen: Mapping[RunRef, int]) -> Iterable[Key]:
        """Say which rows are needed; *seen* is how far each run was read, without runs that are not there."""

    def rows(self, found: Mapping[Key, Row]) -> Written:
        """Say what is written; *found* are the rows that were there."""


class Projections(Protocol):
    """The tables of all projections."""

    async def prepare(self, table: ProjectionTable) -> None:
        """Make the table if it is not there; raises ``InvalidRequest`` for one that has other columns."""

    async def project(self, table: ProjectionTable, runs: Sequence[RunRef], reading: Reading) -> None:
        """Do *reading* for *runs*, in one transaction."""

    async def empty(self, table: ProjectionTable) -> None:
        """Delete all rows, and forget how far any run was read, in one transaction."""


def check_identifier(text: str, what: str) -> str:
    """Return *text* if it may be the name of a table or a column in both databases."""
    if _IDENTIFIER.fullmatch(text) is None or text.startswith(_OURS):
        raise InvalidRequest(
            f"{what} {text[:80]!r} is not allowed: use 1 to 60 of a-z 0-9 _, not beginning with a digit or "
            f"with {_OURS}"
        )
    return text


def create_statement(table: ProjectionTable) -> str:
    """Return what makes *table*, for both databases."""
    columns = [
        f'"{column.name}" {SQL_TYPES[column.kind]}{"" if column.is_nullable else " NOT NULL"}'
        for column in table.columns
    ]
    key = ", ".join(f'"{column.name}"' for column in table.key)
    return f'CREATE TABLE "{table.name}" ({", ".join(columns)}, PRIMARY KEY ({key}))'


def empty_statement(table: ProjectionTable) -> str:
    """Return what deletes all rows of *table*, for both databases."""
    return f'DELETE FROM "{table.name}"'  # noqa: S608 - the name was checked when it was registered


def check_columns(table: ProjectionTable, there: Iterable[str]) -> None:
    """Refuse a table that lacks a column."""
    missing = [column for column in table.columns if column.name not in set(there)]
    if missing:
        added = "; ".join(
            f"ALTER TABLE {table.name} ADD COLUMN {column.name} {SQL_TYPES[column.kind]}"
            for column in missing
        )
        raise InvalidRequest(
            f"projection {table.projection!r} needs columns that table {table.name!r} does not have: {added}"
        )


def listed(columns: Iterable[Column]) -> str:
    """Return the names of *columns* as statements have them."""
    return ", ".join(f'"{column.name}"' for column in columns)


def conflict_clause(table: ProjectionTable) -> str:
    """Return what an insert does where there is such a row already."""
    rest = [f'"{column.name}" = excluded."{column.name}"' for column in table.columns[table.key_count :]]
    action = f"DO UPDATE SET {', '.join(rest)}" if rest else "DO NOTHING"
    return f"ON CONFLICT ({listed(table.key)}) {action}"


def read_row(table: ProjectionTable, values: Iterable[Any]) -> Row:
    """Return a row as it was written: SQLite has no truth values."""
    return tuple(
        bool(value) if column.kind == "boolean" and value is not None else value
        for column, value in zip(table.columns, values, strict=True)
    )
