"""What no caller of a store can see: the rows themselves, to look at and to damage."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import psycopg

from tidewheel.store.memory import MemoryStore
from tidewheel.store.passages import checksum
from tidewheel.store.postgres.store import PostgresStore
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef
from tidewheel.store.sqlite.store import SqliteStore


class PassageRow(NamedTuple):
    """A row of the journal, as far as it says what it publishes."""

    first_seq: int
    last_seq: int
    public: bytes | None


class Inside(Protocol):
    """A store and its rows."""

    #: How the users' statements mark a parameter.
    placeholder: str

    @property
    def store(self) -> Store:
        """The store."""

    def passages(self, ref: RunRef) -> list[PassageRow]:
        """Return the rows of a run's journal."""

    def outbox(self, ref: RunRef) -> list[tuple[int, int]]:
        """Return the ranges that the event bus is owed."""

    def clear_outbox(self) -> None:
        """Take out all that the event bus is owed."""

    def row_counts(self) -> dict[str, int]:
        """Return how many rows each table has."""

    def replace_passage(self, ref: RunRef, first_seq: int, **changes: Any) -> None:
        """Change columns of a row of the journal behind the store's back; the checksum goes along."""


class InsideMemory:
    """The twin's dicts."""

    placeholder = "?"

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    def passages(self, ref: RunRef) -> list[PassageRow]:
        """Return the rows of a run's journal."""
        rows = self.store.rows
        return [
            PassageRow(row.first_seq, row.last_seq, row.public) for row in rows.journals[rows.by_ref[ref]]
        ]

    def outbox(self, ref: RunRef) -> list[tuple[int, int]]:
        """Return the ranges that the event bus is owed."""
        rows = self.store.rows
        return [(row.first_seq, row.last_seq) for row in rows.outbox[rows.by_ref[ref]]]

    def clear_outbox(self) -> None:
        """Take out all that the event bus is owed."""
        self.store.rows.outbox.clear()

    def row_counts(self) -> dict[str, int]:
        """Return how many rows each table has."""
        rows = self.store.rows
        tables: dict[str, Any] = {
            "journal": rows.journals,
            "steps": rows.open_steps,
            "timers": rows.open_timers,
            "promises": rows.promises,
            "facts_seen": rows.known,
            "step_ids": rows.step_ids,
            "outbox": rows.outbox,
            "snapshot_steps": self.store.snapshots.later,
            "projections": self.store.snapshots.watermarks,
        }
        counts = {name: sum(map(len, table.values())) for name, table in tables.items()}
        names = len(rows.by_ref) + len(rows.by_idempotency_key)
        snapshots = len(self.store.snapshots.rows)
        return counts | {"runs": len(rows.runs), "names": names, "snapshots": snapshots}

    def replace_passage(self, ref: RunRef, first_seq: int, **changes: Any) -> None:
        """Change columns of a row of the journal behind the store's back."""
        journal = self.store.rows.journals[self.store.rows.by_ref[ref]]
        (place,) = [place for place, row in enumerate(journal) if row.first_seq == first_seq]
        journal[place] = msgspec.structs.replace(journal[place], **changes)


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

    def passages(self, ref: RunRef) -> list[PassageRow]:
        """Return the rows of a run's journal."""
        sql = "SELECT first_seq, last_seq, public FROM tidewheel_journal WHERE run_key = ? ORDER BY 1"
        return [PassageRow(*row) for row in self.rows(sql, self._key(ref))]

    def outbox(self, ref: RunRef) -> list[tuple[int, int]]:
        """Return the ranges that the event bus is owed."""
        sql = "SELECT first_seq, last_seq FROM tidewheel_outbox WHERE run_key = ? ORDER BY 1"
        return self.rows(sql, self._key(ref))

    def clear_outbox(self) -> None:
        """Take out all that the event bus is owed."""
        self.rows("DELETE FROM tidewheel_outbox")

    def row_counts(self) -> dict[str, int]:
        """Return how many rows each table has."""
        tables = [
            name
            for (name,) in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
            if name not in ("tidewheel_version", "tidewheel_workers")
        ]
        counted = {name: self.rows(f"SELECT count(*) FROM {name}") for name in tables}  # noqa: S608 - our own names
        return {name.removeprefix("tidewheel_"): count for name, ((count,),) in counted.items()}

    def replace_passage(self, ref: RunRef, first_seq: int, **changes: Any) -> None:
        """Change columns of a row of the journal behind the store's back."""
        if "data" in changes:
            changes["checksum"] = checksum(changes["data"])
        columns = ", ".join(f"{name} = ?" for name in changes)
        sql = f"UPDATE tidewheel_journal SET {columns} WHERE run_key = ? AND first_seq = ?"  # noqa: S608 - our own names
        self.rows(sql, *changes.values(), self._key(ref), first_seq)


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

    def passages(self, ref: RunRef) -> list[PassageRow]:
        """Return the rows of a run's journal."""
        sql = "SELECT first_seq, last_seq, public FROM tidewheel_journal WHERE run_key = %s ORDER BY 1"
        return [PassageRow(*row) for row in self.rows(sql, self._key(ref))]

    def outbox(self, ref: RunRef) -> list[tuple[int, int]]:
        """Return the ranges that the event bus is owed."""
        sql = "SELECT first_seq, last_seq FROM tidewheel_outbox WHERE run_key = %s ORDER BY 1"
        return self.rows(sql, self._key(ref))

    def clear_outbox(self) -> None:
        """Take out all that the event bus is owed."""
        self.rows("DELETE FROM tidewheel_outbox")

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

    def replace_passage(self, ref: RunRef, first_seq: int, **changes: Any) -> None:
        """Change columns of a row of the journal behind the store's back."""
        if "data" in changes:
            changes["checksum"] = checksum(changes["data"])
        columns = ", ".join(f"{name} = %s" for name in changes)
        sql = f"UPDATE tidewheel_journal SET {columns} WHERE run_key = %s AND first_seq = %s"  # noqa: S608 - our own names
        self.rows(sql, *changes.values(), self._key(ref), first_seq)
