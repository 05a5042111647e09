"""Bringing a file to the schema of this release."""

from __future__ import annotations

from pathlib import Path

from tidewheel.store.migrations import upgrade
from tidewheel.store.sqlite.connection import Database
from tidewheel.store.sqlite.faults import translated
from tidewheel.store.sqlite.revision import revision_of

#: How long to wait for another process that migrates.
LOCK_TIMEOUT_S = 30.0


def create_and_migrate(path: Path) -> list[str]:
    """Make the file if it is not there, and bring it to the newest schema."""
    Database(path).create()
    return migrate_file(path)


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
            driver = connection.connection.driver_connection
            assert driver is not None
            return upgrade(connection, str(path), revision_of(driver))
    except exc.DBAPIError as error:
        if isinstance(error.orig, BaseException):
            raise translated(error.orig, path) from error
        raise
