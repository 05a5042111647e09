"""Whether a file has the schema of this release, found out with one small query.

SQLAlchemy and Alembic take half a second to import, so they are imported only if a
schema has to be changed.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from tidewheel.store.revision import NEWEST, is_newer, mismatch
from tidewheel.store.sqlite.connection import Database


def revision_of(connection: sqlite3.Connection) -> str | None:
    """Return the revision of the schema, None if the file has none of our tables."""
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tidewheel_version'").fetchone()
    row = (
        None if known is None else connection.execute("SELECT version_num FROM tidewheel_version").fetchone()
    )
    return None if row is None else str(row[0])


def revision_of_file(path: Path) -> str | None:
    """Return the revision of the file at *path*, which is not made if it is not there."""
    if not path.exists():
        return None
    with contextlib.closing(Database(path).connect(reads_only=True)) as connection:
        return revision_of(connection)


def check_revision(connection: sqlite3.Connection) -> None:
    """Raise ``SchemaMismatch`` unless the file has the schema of this release."""
    revision = revision_of(connection)
    if revision != NEWEST:
        raise mismatch(_file_of(connection), revision)


def prepare(path: Path, *, auto_migrate: bool, busy_timeout_s: float) -> None:
    """Make the file if it is not there, and bring its schema up to date as far as that may be done."""
    revision, is_empty = _look(path, busy_timeout_s)
    if revision == NEWEST:
        return
    if is_newer(revision):
        raise mismatch(str(path), revision)
    if not (is_empty or auto_migrate):
        raise mismatch(str(path), revision)
    from tidewheel.store.sqlite.migrating import migrate_file  # noqa: PLC0415 - takes half a second

    migrate_file(path)


def _look(path: Path, busy_timeout_s: float) -> tuple[str | None, bool]:
    """Return the revision, and whether there is nothing at all in the file."""
    database = Database(path, busy_timeout_s=busy_timeout_s)
    database.create()
    with contextlib.closing(database.connect(reads_only=True)) as connection:
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return revision_of(connection), tables == 0


def _file_of(connection: sqlite3.Connection) -> str:
    return str(connection.execute("PRAGMA database_list").fetchone()[2])
