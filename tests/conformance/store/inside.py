"""What no caller of a store can see: the rows themselves, to look at and to damage."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import psycopg

from tidewheel.journal.codec import StoredEvent
from tidewheel.store.memory import MemoryStore
from tidewheel.store.postgres.store import PostgresStore
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef
from tidewheel.store.sqlite.store import SqliteStore


class PublicColumns(NamedTuple):
    """What a row of the journal says of its public event."""

    run_seq: int
    public_key: bytes | None
    prev_seq: int | None
    public: bytes | None


class Inside(Protocol):
    """A store and its rows."""

    #: How the users' statements mark a parameter.
    placeholder: str

    @property
    def store(self) -> Store:
        """The store."""

    def public_columns(self, ref: RunRef) -> list[PublicColumns]:
        """Return the public columns of a run's journal."""

    def outbox(self, ref: RunRef) -> list[tuple[int, int]]:
        """Return the ranges that the event bus is owed."""

    def row_counts(self) -> dict[str, int]:
        """Return how many rows each table has."""

    def replace_event(self, ref: RunRef, run_seq: int, **changes: Any) -> None:
        """Change columns of an event behind the store's back."""


class InsideMemory:
    """The twin's dicts."""

    placeholder = "?"

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    def public_columns(self, ref: RunRef) -> list[PublicColumns]:
        """Return the public columns of a run's journal."""
        rows = self.store.rows
        return [
            PublicColumns(row.run_seq, row.public_key, row.prev_seq, row.public)
            for row in rows.events[rows.by_ref[ref]]
        ]

    def outbox(self, ref: RunRef) -> list[tuple[int, int]]:
        """Return the ranges that the event bus is owed."""
        rows = self.store.rows
        return list(rows.outbox[rows.by_ref[ref]])

    def row_counts(self) -> dict[str, int]:
        """Return how many rows each table has."""
        rows = self.store.rows
        tables: dict[str, Any] = {
            "events": rows.events,
            "steps": rows.open_steps,
            "timers": rows.open_timers,
            "promises": rows.promises,
            "facts_seen": rows.known,
            "step_ids": rows.step_ids,
            "outbox": rows.outbox,
        }
        counts = {name: sum(map(len, table.values())) for name, table in tables.items()}
        names = len(rows.by_ref) + len(rows.by_idempotency_key)
        return counts | {"runs": len(rows.runs), "names": names}

    def replace_event(self, ref: RunRef, run_seq: int, **changes: Any) -> None:
        """Change columns of an event behind the store's back."""
        journal = self.store.rows.events[self.store.rows.by_ref[ref]]
        old = journal[run_seq].stored
        stored = StoredEvent(**(msgspec.structs.asdict(old) | changes))
        journal[run_seq] = msgspec.structs.replace(journal[run_seq], stored=stored)


class InsideSqlite:
    """The file's tables, over a connection of the test's own."""

    placeholder = "?"

    def __init__(self, store: SqliteStore, path: Path) -> None:
        self.store = store
        self._path = path

    def rows(self, sql: str, *values: Any) -> list[Any]:
        """Execute a statement of the test's own."""
        with contextlib.closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            return connection.execute(sql, values).fetchall()

    def _key(self, ref: RunRef) -> bytes:
        ((key,),) = self.rows("SELECT run_key FROM tidewheel_runs WHERE namespace = ? AND run_id = ?", *ref)
        assert isinstance(key, bytes)
        return key

    def public_columns(self, ref: RunRef) -> list[PublicColumns]:
        """Return the public columns of a run's journal."""
        sql = (
            "SELECT run_seq, public_key, prev_seq, public FROM tidewheel_events WHERE run_key = ? ORDER BY 1"
        )
        return [PublicColumns(*row) for row in self.rows(sql, self._key(ref))]

    def outbox(self, ref: RunRef) -> list[tuple[int, int]]:
        """Return the ranges that the event bus is owed."""
        sql = "SELECT first_seq, last_seq FROM tidewheel_outbox WHERE run_key = ? ORDER BY 1"
        return self.rows(sql, self._key(ref))

    def row_counts(self) -> dict[str, int]:
        """Return how many rows each table has."""
        tables = [
            name
            for (name,) in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
            if name not in ("tidewheel_version", "tidewheel_workers")
        ]
        counted = {name: self.rows(f"SELECT count(*) FROM {name}") for name in tables}  # noqa: S608 - our own names
        return {name.removeprefix("tidewheel_"): count for name, ((count,),) in counted.items()}

    def replace_event(self, ref: RunRef, run_seq: int, **changes: Any) -> None:
        """Change columns of an event behind the store's back; the checksum stays as it was."""
        columns = ", ".join(f"{name} = ?" for name in changes)
        sql = f"UPDATE tidewheel_events SET {columns} WHERE run_key = ? AND run_seq = ?"  # noqa: S608 - our own names
        self.rows(sql, *changes.values(), self._key(ref), run_seq)


class InsidePostgres:
    """The database's tables, over a connection of the test's own."""

    placeholder = "%s"

    def __init__(self, store: PostgresStore, url: str) -> None:
        self.store = store
        self._url = url

    def rows(self, sql: str, *values: Any) -> list[Any]:
        """Execute a statement of the test's own."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            cursor = connection.execute(sql.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def _key(self, ref: RunRef) -> bytes:
        sql = "SELECT run_key FROM tidewheel_runs WHERE namespace = %s AND run_id = %s"
        ((key,),) = self.rows(sql, *ref)
        assert isinstance(key, bytes)
        return key

    def public_columns(self, ref: RunRef) -> list[PublicColumns]:
        """Return the public columns of a run's journal."""
        sql = (
            "SELECT run_seq, public_key, prev_seq, public FROM tidewheel_events WHERE run_key = %s ORDER BY 1"
        )
        return [PublicColumns(*row) for row in self.rows(sql, self._key(ref))]

    def outbox(self, ref: RunRef) -> list[tuple[int, int]]:
        """Return the ranges that the event bus is owed."""
        sql = "SELECT first_seq, last_seq FROM tidewheel_outbox WHERE run_key = %s ORDER BY 1"
        return self.rows(sql, self._key(ref))

    def row_counts(self) -> dict[str, int]:
        """Return how many rows each table has."""
        names = "SELECT relname FROM pg_class WHERE relname LIKE 'tidewheel_%%' AND relkind IN ('r', 'p')"
        tables = [
            name
            for (name,) in self.rows(names + " AND NOT relispartition")
            if name not in ("tidewheel_version", "tidewheel_workers")
        ]
        counted = {name: self.rows(f"SELECT count(*) FROM {name}") for name in tables}  # noqa: S608 - our own names
        return {name.removeprefix("tidewheel_"): count for name, ((count,),) in counted.items()}

    def replace_event(self, ref: RunRef, run_seq: int, **changes: Any) -> None:
        """Change columns of an event behind the store's back; the checksum stays as it was."""
        columns = ", ".join(f"{name} = %s" for name in changes)
        sql = f"UPDATE tidewheel_events SET {columns} WHERE run_key = %s AND run_seq = %s"  # noqa: S608 - our own names
        self.rows(sql, *changes.values(), self._key(ref), run_seq)
