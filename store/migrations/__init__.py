"""Bringing a database to the schema of this release, with Alembic.

A migration is one transaction that holds a lock from its first look: of several processes that find the same
database to be migrated, one migrates, and the others wait and find it done. Alembic and SQLAlchemy are
imported when they are needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tidewheel.journal.errors import InvalidRequest
from tidewheel.store.revision import NEWEST, is_newer, mismatch
from tidewheel.store.urls import MemoryUrl, PostgresUrl, parse_url


class SchemaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where a database stands; ``current`` is None if it has no schema yet."""

    current: str | None
    newest: str

    @property
    def is_current(self) -> bool:
        """Whether this release can work with it."""
        return self.current == self.newest


def migrate(url: str, *, roles: bool = False) -> list[str]:
    """Bring the database at *url* to the newest schema; return the revisions that were applied.

    With *roles* it also makes the roles that keep a journal append-only, on Postgres.
    """
    parsed = parse_url(url)
    if isinstance(parsed, PostgresUrl):
        from tidewheel.store.postgres.migrating import migrate_database  # noqa: PLC0415 - only when it is used

        return migrate_database(parsed.url, roles=roles)
    if isinstance(parsed, MemoryUrl):
        raise InvalidRequest("a store in memory has no schema to migrate")
    if roles:
        raise InvalidRequest("roles are Postgres's: a SQLite file is protected by its permissions")
    from tidewheel.store.sqlite.migrating import create_and_migrate  # noqa: PLC0415 - as above

    return create_and_migrate(parsed.path)


def schema_status(url: str) -> SchemaStatus:
    """Tell which schema the database at *url* has. A file that is not there is not made."""
    parsed = parse_url(url)
    if isinstance(parsed, PostgresUrl):
        from tidewheel.store.postgres.migrating import current_revision  # noqa: PLC0415 - only when it is used

        return SchemaStatus(current=current_revision(parsed.url), newest=NEWEST)
    if isinstance(parsed, MemoryUrl):
        raise InvalidRequest("a store in memory has no schema to migrate")
    from tidewheel.store.sqlite.revision import revision_of_file  # noqa: PLC0415 - as above

    return SchemaStatus(current=revision_of_file(parsed.path), newest=NEWEST)


def upgrade(connection: Any, database: str, revision: str | None) -> list[str]:
    """Apply what is missing, in the transaction of *connection*; *revision* is what *database* has."""
    if revision == NEWEST:
        return []
    if is_newer(revision):
        raise mismatch(database, revision)
    from alembic import command  # noqa: PLC0415 - half a second, and rarely needed
    from alembic.config import Config  # noqa: PLC0415 - as above

    applied: list[str] = []
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    config.attributes["applied"] = applied
    command.upgrade(config, "head")
    return applied
