"""Bringing a database to the schema of this release, with Alembic.

A migration is one transaction that holds the database's write lock from its first look: of several processes
that open a new file at once, one migrates, and the others wait and find it done. Alembic and SQLAlchemy are
imported when they are needed.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec

from tidewheel.journal.errors import InvalidRequest
from tidewheel.store.sqlite.connection import Database
from tidewheel.store.sqlite.faults import translated
from tidewheel.store.sqlite.revision import NEWEST, mismatch, revision_of
from tidewheel.store.urls import SqliteUrl, parse_url

#: How long to wait for another process that migrates.
LOCK_TIMEOUT_S = 30.0


class SchemaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where a database stands; ``current`` is None if it has no schema yet."""

    current: str | None
    newest: str

    @property
    def is_current(self) -> bool:
        """Whether this release can work with it."""
        return self.current == self.newest


def migrate(url: str) -> list[str]:
    """Bring the database at *url* to the newest schema; return the revisions that were applied."""
    path = _path(url)
    Database(path).create()
    return migrate_file(path)


def schema_status(url: str) -> SchemaStatus:
    """Tell which schema the database at *url* has. A file that is not there is not made."""
    path = _path(url)
    if not path.exists():
        return SchemaStatus(current=None, newest=NEWEST)
    with contextlib.closing(Database(path).connect(reads_only=True)) as connection:
        return SchemaStatus(current=revision_of(connection), newest=NEWEST)


def migrate_file(path: Path) -> list[str]:
    """Bring the file at *path* to the newest schema; return the revisions that were applied."""
    from sqlalchemy import event, exc  # noqa: PLC0415 - half a second, and rarely needed
    from sqlalchemy.engine import create_engine  # noqa: PLC0415 - as above
    from sqlalchemy.pool import NullPool  # noqa: PLC0415 - as above

    database = Database(path, busy_timeout_s=LOCK_TIMEOUT_S)
    engine = create_engine("sqlite://", creator=database.connect, poolclass=NullPool)
    # The driver begins nothing by itself (isolation_level is None), so that DDL is in the transaction too.
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    try:
        with engine.begin() as connection:
            return _upgrade(connection, path)
    except exc.DBAPIError as error:
        if isinstance(error.orig, BaseException):
            raise translated(error.orig, path) from error
        raise


def _upgrade(connection: Any, path: Path) -> list[str]:
    """Apply what is missing, in the transaction of *connection*."""
    from alembic import command  # noqa: PLC0415 - see above
    from alembic.config import Config  # noqa: PLC0415 - see above

    revision = revision_of(connection.connection.driver_connection)
    if revision == NEWEST:
        return []
    if revision is not None and int(revision) > int(NEWEST):
        raise mismatch(str(path), revision)
    applied: list[str] = []
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    config.attributes["applied"] = applied
    command.upgrade(config, "head")
    return applied


def _path(url: str) -> Path:
    parsed = parse_url(url)
    if not isinstance(parsed, SqliteUrl):
        raise InvalidRequest("a store in memory has no schema to migrate")
    return parsed.path
