"""From a URL to an open store. What a store needs is imported when it is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidewheel.store.urls import MemoryUrl, PostgresUrl, parse_url

if TYPE_CHECKING:
    from tidewheel.store.memory import MemoryStore
    from tidewheel.store.postgres.config import PostgresConfig
    from tidewheel.store.protocol import Store

_of_this_process: list[MemoryStore] = []


async def open_store(
    url: str, *, auto_migrate: bool | None = None, postgres: PostgresConfig | None = None
) -> Store:
    """Open the store that *url* names.

    A file is brought to the schema of this release unless *auto_migrate* is false, a Postgres database only
    if it is true: others may be working with it, and who may change it is for its owner to say. *postgres* is
    how a Postgres database is used.

    Raises ``InvalidRequest`` for a URL that can never work, ``StoreUnavailable`` where the store cannot
    be used now, ``SchemaMismatch`` where it is another release's.
    """
    parsed = parse_url(url)
    if isinstance(parsed, MemoryUrl):
        return _memory()
    if isinstance(parsed, PostgresUrl):
        from tidewheel.store.postgres.store import PostgresStore  # noqa: PLC0415 - only when it is used

        return await PostgresStore.open(parsed.url, auto_migrate=bool(auto_migrate), config=postgres)
    from tidewheel.store.sqlite.store import SqliteStore  # noqa: PLC0415 - only when it is used

    return await SqliteStore.open(parsed.path, auto_migrate=auto_migrate is not False)


def _memory() -> MemoryStore:
    """Return the one memory store of this process: whoever opens it sees the same runs."""
    from tidewheel.store.memory import MemoryStore  # noqa: PLC0415 - only when it is used

    if not _of_this_process:
        _of_this_process.append(MemoryStore())
    return _of_this_process[0]
