"""Bringing a Postgres database to the schema of this release: tables, functions, partitions, roles.

Functions are made again each time. One whose arguments change gets a new number in its name, and the old one
stays until no release uses it any more, so that old and new workers run side by side during an upgrade.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, exc, text
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.pool import NullPool

from tidewheel.store.migrations import upgrade
from tidewheel.store.postgres.asked import name_number
from tidewheel.store.postgres.config import PostgresConfig
from tidewheel.store.postgres.database import shown
from tidewheel.store.postgres.faults import translated

#: How long to wait for another process that migrates, or for those who use the tables.
LOCK_TIMEOUT_S = 30

_SIZE = """
SELECT sum(pg_total_relation_size(oid))
  FROM pg_class
 WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND relname LIKE 'tidewheel\\_%'
"""
_OWNER = "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = to_regclass('tidewheel_runs')"
_HERE = Path(__file__).parent
#: In this order: some of them use others.
_FUNCTIONS = ("now", "look", "lock", "write", "write_known", "delete", "partitions")


def migrate_database(url: str, *, roles: bool = False) -> list[str]:
    """Bring the database at *url* to the newest schema; return the revisions that were applied.

    Where there are roles already they are granted what is new, whether *roles* are asked for or not.
    """
    config = PostgresConfig()
    with _connected(url) as connection:
        connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:name)"), {"name": name_number("migration")})
        roles = roles or _has_roles(connection)
        applied = upgrade(connection, shown(make_url(url)), _revision(connection))
        for file in _FUNCTIONS:
            connection.exec_driver_sql(_script(_HERE / "functions" / f"{file}.sql"))
        connection.execute(
            text("SELECT tidewheel_make_partitions_v2(tidewheel_now_v1(), :days, :ahead)"),
            {"days": config.partition_days, "ahead": config.partitions_ahead},
        )
        if roles:
            connection.exec_driver_sql(_script(_HERE / "roles.sql"))
        return applied


def _has_roles(connection: Connection) -> bool:
    """Tell whether an earlier migration made roles, and gave our tables to one of them."""
    return connection.execute(text(_OWNER)).scalar() == "tidewheel_migrator"


def current_revision(url: str) -> str | None:
    """Return the revision of the database's schema, None if it has none of our tables."""
    with _connected(url) as connection:
        return _revision(connection)


def size_of_tables(url: str) -> int:
    """Return how many bytes our tables and their indexes take."""
    with _connected(url) as connection:
        size: Any = connection.execute(text(_SIZE)).scalar()
        return int(size or 0)


def _revision(connection: Connection) -> str | None:
    if connection.execute(text("SELECT to_regclass('tidewheel_version')")).scalar() is None:
        return None
    revision: Any = connection.execute(text("SELECT version_num FROM tidewheel_version")).scalar()
    return None if revision is None else str(revision)


def _script(file: Path) -> str:
    """Return the statements of *file*; the driver takes a percent sign for a placeholder."""
    return file.read_text("utf-8").replace("%", "%%")


@contextlib.contextmanager
def _connected(url: str) -> Iterator[Connection]:
    """Open a connection with a transaction of its own; what goes wrong is told as the store tells it."""
    parsed = make_url(url)
    arguments = {"connect_timeout": 5, "application_name": "tidewheel migrate"}
    engine = create_engine(
        parsed.set(drivername="postgresql+psycopg"), poolclass=NullPool, connect_args=arguments
    )
    try:
        with engine.begin() as connection:
            yield connection
    except exc.SQLAlchemyError as error:
        raise translated(error, shown(parsed)) from error
    finally:
        engine.dispose()
