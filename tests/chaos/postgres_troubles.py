"""Troubles of a Postgres server that goes on: made and mended by a test while a fleet uses it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import psycopg
from psycopg import sql

from tests.chaos.fleet import Fleet
from tests.servers.postgres import ACCOUNT

Trouble: TypeAlias = Callable[[Fleet], contextlib.AbstractContextManager[None]]

#: A user as operators make them, whose connections can be limited; superusers' cannot.
USER, PASSWORD = "limited", "limited"
#: The room on a disk that can be filled: enough for a database, and soon gone.
DISK_MB = 48


def user_url(fleet: Fleet) -> str:
    """Make the user, if it is not there, and return the database's URL for it."""
    with psycopg.connect(fleet.direct[0], autocommit=True) as connection:
        known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (USER,)).fetchone()
        if known is None:
            connection.execute(f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'")
        connection.execute(f"ALTER ROLE {USER} CONNECTION LIMIT -1")
        connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {USER}")
        connection.execute(f"GRANT CREATE ON SCHEMA public TO {USER}")
    parts = fleet.urls[0].partition("://")[2]
    return f"postgresql://{USER}:{PASSWORD}@{parts.partition('@')[2]}"


@contextlib.contextmanager
def locked_table(fleet: Fleet) -> Iterator[None]:
    """Hold ``ACCESS EXCLUSIVE`` on the journal, as a person at a prompt does (34)."""
    with psycopg.connect(fleet.direct[0]) as connection:
        connection.execute("LOCK TABLE tidewheel_journal IN ACCESS EXCLUSIVE MODE")
        yield
        connection.rollback()


@contextlib.contextmanager
def locked_runs(fleet: Fleet) -> Iterator[None]:
    """Hold the rows of all runs in a transaction that does nothing (38)."""
    with psycopg.connect(fleet.direct[0]) as connection:
        connection.execute("SELECT 1 FROM tidewheel_runs FOR UPDATE")
        yield
        connection.rollback()


@contextlib.contextmanager
def read_only(fleet: Fleet) -> Iterator[None]:
    """Let the database take no writes, as one that was the primary before a failover (39)."""
    _alter(fleet, "SET default_transaction_read_only = on")
    try:
        yield
    finally:
        _alter(fleet, "RESET default_transaction_read_only")


@contextlib.contextmanager
def crowded(fleet: Fleet) -> Iterator[None]:
    """Let the user have no connection any more: others have them all (36)."""
    with psycopg.connect(fleet.direct[0], autocommit=True) as connection:
        connection.execute(f"ALTER ROLE {USER} CONNECTION LIMIT 0")
        try:
            _end_sessions(connection)
            yield
        finally:
            connection.execute(f"ALTER ROLE {USER} CONNECTION LIMIT -1")


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount a small file system that Postgres may use; ``PermissionError`` where this machine forbids it."""
    place = folder / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(place)],  # noqa: S607 - as found
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        raise PermissionError(mounted.stderr.strip())
    try:
        shutil.chown(place, ACCOUNT)
        # Postgres has to get there.
        for parent in (folder, *folder.parents):
            if parent.stat().st_uid == os.getuid() and not parent.stat().st_mode & 0o001:
                parent.chmod(parent.stat().st_mode | 0o011)
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False)  # noqa: S607 - as found


def move_to(disk: Path, fleet: Fleet) -> None:
    """Let the fleet's database be on *disk*; nobody may be connected to it."""
    name = fleet.direct[0].rpartition("/")[2]
    with psycopg.connect(fleet.servers.postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLESPACE small LOCATION '{disk}'".encode())
        connection.execute(f"ALTER DATABASE {name} SET TABLESPACE small".encode())


@contextlib.contextmanager
def full(disk: Path) -> Iterator[None]:
    """Let there be no room left on *disk* (35)."""
    filler = disk / "filler"
    with filler.open("wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(8_192))
            file.flush()
    try:
        yield
    finally:
        filler.unlink()


def _alter(fleet: Fleet, change: str) -> None:
    """Change the database for its coming sessions, and end those that there are."""
    name = fleet.direct[0].rpartition("/")[2]
    with psycopg.connect(fleet.servers.postgres.url, autocommit=True) as connection:
        connection.execute(sql.SQL("ALTER DATABASE {} {}").format(sql.Identifier(name), sql.SQL(change)))
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )


def _end_sessions(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (USER,))
