"""A database as an earlier release left it: its schema, and the rows that were in it.

``released/schema_0001.json`` has what release 0.3 wrote, with runs in every state that it knew. ``tables``
are all rows, in the order of their columns: keys are hexadecimal, other bytes are text. ``journals`` are what
that release read from them: each run's journal, in the form of ``run journal --json``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Connection
from sqlalchemy.pool import NullPool

import tidewheel.store.migrations
from tidewheel.journal.events import Entry
from tidewheel.journal.jsonform import loads
from tidewheel.store.records import RunRef

#: A row, by the names of its columns.
Row: TypeAlias = dict[str, Any]

_KEYS = {"run_key", "parent_key", "token", "public_key"}
_BYTES = {"data", "public", "beat"}
_TRUTHS = {
    "cancelling",
    "paused",
    "has_unkeyed_steps",
    "has_numeric_keys",
    "abandoned",
    "failed",
    "resolved",
}


class _Table(msgspec.Struct):
    columns: list[str]
    rows: list[list[Any]]


class _Journal(msgspec.Struct):
    namespace: str
    run_id: str
    journal: msgspec.Raw


class _File(msgspec.Struct):
    tables: dict[str, _Table]
    journals: list[_Journal]


class Released:
    """What is in the file; ``tables`` may be changed before they are written."""

    def __init__(self, revision: str) -> None:
        self._revision = revision
        file = Path(__file__).parent / "released" / f"schema_{revision}.json"
        read = msgspec.json.decode(file.read_bytes(), type=_File)
        self.tables: dict[str, list[Row]] = {name: _rows(table) for name, table in read.tables.items()}
        self.journals: dict[RunRef, list[Entry]] = {
            RunRef(one.namespace, one.run_id): loads(bytes(one.journal)) for one in read.journals
        }

    def key(self, ref: RunRef) -> bytes:
        """Return the key of a run."""
        (key,) = [
            row["run_key"] for row in self.tables["runs"] if RunRef(row["namespace"], row["run_id"]) == ref
        ]
        assert isinstance(key, bytes)
        return key

    def of_run(self, table: str, ref: RunRef) -> list[Row]:
        """Return the rows of *table* that belong to a run."""
        key = self.key(ref)
        return [row for row in self.tables[table] if row["run_key"] == key]

    def retire(self, ref: RunRef) -> None:
        """Forget a run but for its events."""
        key = self.key(ref)
        for name, rows in self.tables.items():
            if name not in ("events", "workers"):
                rows[:] = [row for row in rows if row["run_key"] != key]

    def write(self, url: str, *prepared: str) -> None:
        """Give the empty database at *url* the release's schema and, after *prepared*, its rows."""
        engine = create_engine(url, poolclass=NullPool)
        with engine.begin() as connection:
            self._migrate(connection)
            for statement in prepared:
                connection.execute(text(statement))
            for name, rows in self.tables.items():
                if rows:
                    connection.execute(_insert(name, rows[0]), rows)
        engine.dispose()

    def _migrate(self, connection: Connection) -> None:
        config = Config()
        folder = Path(tidewheel.store.migrations.__file__).parent
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.attributes.update(connection=connection, applied=[])
        command.upgrade(config, self._revision)


def _rows(table: _Table) -> list[Row]:
    return [
        {name: _value(name, value) for name, value in zip(table.columns, row, strict=True)}
        for row in table.rows
    ]


def _value(column: str, value: Any) -> Any:
    if value is None:
        return None
    if column in _KEYS:
        return bytes.fromhex(value)
    if column in _BYTES:
        return value.encode()
    return bool(value) if column in _TRUTHS else value


def _insert(table: str, row: Row) -> Any:
    names, values = ", ".join(row), ", ".join(f":{name}" for name in row)
    return text(f"INSERT INTO tidewheel_{table} ({names}) VALUES ({values})")  # noqa: S608 - our own names
