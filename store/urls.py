"""What a store's URL says. Passwords in it are never repeated in a message."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from tidewheel.journal.errors import InvalidRequest

_FORMS = "postgresql://user@host/database, sqlite:///relative.db, sqlite:////absolute.db or memory://"


class MemoryUrl(msgspec.Struct, frozen=True):
    """The store of this process, gone with it."""


class SqliteUrl(msgspec.Struct, frozen=True):
    """A store in a file."""

    path: Path


class PostgresUrl(msgspec.Struct, frozen=True):
    """A store in a Postgres database; ``url`` may hold a password."""

    url: str


def parse_url(url: str) -> MemoryUrl | SqliteUrl | PostgresUrl:
    """Return what *url* names; ``InvalidRequest`` says what is wrong with it."""
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator:
        raise InvalidRequest(f"{_shown(url)!r} is not the URL of a store; write {_FORMS}")
    if scheme == "memory":
        if rest.strip("/"):
            raise InvalidRequest(f"memory:// takes nothing after it, and {_shown(url)!r} has something")
        return MemoryUrl()
    if scheme in ("sqlite", "sqlite3"):
        return _sqlite(url, rest)
    if scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        return _postgres(url, rest)
    if scheme.startswith(("postgres+", "postgresql+")):
        raise InvalidRequest(
            f"the store has its own driver for Postgres; write postgresql:// for {scheme}://"
        )
    raise InvalidRequest(f"{scheme}:// is not a store of this release; write {_FORMS}")


def _sqlite(url: str, rest: str) -> SqliteUrl:
    shown = _shown(url)
    if "?" in rest or "#" in rest:
        raise InvalidRequest(f"{shown!r}: the store takes no options after the file's name")
    if not rest.startswith("/"):
        raise InvalidRequest(f"{shown!r} names a host; a file has three slashes (four if absolute): {_FORMS}")
    name = unquote(rest[1:])
    if name == ":memory:":
        raise InvalidRequest("SQLite in memory is not shared between connections; write memory://")
    if not name or name.endswith("/"):
        raise InvalidRequest(f"{shown!r} names no file; write {_FORMS}")
    if "\0" in name:
        raise InvalidRequest(f"{shown!r}: a file's name has no NUL")
    return SqliteUrl(Path(name))


def _postgres(url: str, rest: str) -> PostgresUrl:
    if "#" in rest:
        raise InvalidRequest(f"{_shown(url)!r}: write # in a name or password as %23")
    try:
        parts = urlsplit(f"postgresql://{rest}")
        _ = parts.port
    except ValueError:  # whose text may repeat a part of the password
        raise InvalidRequest(f"{_shown(url)!r} is no URL: look at its host and port") from None
    if not parts.path.strip("/") and "dbname=" not in parts.query:
        raise InvalidRequest(f"{_shown(url)!r} names no database; write postgresql://user@host/database")
    return PostgresUrl(f"postgresql://{rest}")


def _shown(url: str) -> str:
    """Return *url* without a user's name and password."""
    return re.sub(r"(?<=//)[^/]*@", "***@", url)
