"""URLs of stores: what they open, and what is said of those that cannot work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewheel.journal.errors import InvalidRequest
from tidewheel.store.memory import MemoryStore
from tidewheel.store.opening import open_store
from tidewheel.store.sqlite.store import SqliteStore
from tidewheel.store.urls import MemoryUrl, SqliteUrl, parse_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:///shop.db", SqliteUrl(Path("shop.db"))),
        ("sqlite:///data/shop.db", SqliteUrl(Path("data/shop.db"))),
        ("sqlite:////var/lib/shop.db", SqliteUrl(Path("/var/lib/shop.db"))),
        ("SQLite:///a%20b.db", SqliteUrl(Path("a b.db"))),
        ("memory://", MemoryUrl()),
    ],
)
def test_a_url_says_where_the_store_is(url: str, expected: MemoryUrl | SqliteUrl) -> None:
    """Three slashes are relative, four are absolute."""
    assert parse_url(url) == expected


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "not the URL of a store"),
        ("shop.db", "not the URL of a store"),
        ("sqlite:shop.db", "not the URL of a store"),
        ("sqlite://shop.db", "names a host"),
        ("sqlite://", "names a host"),
        ("sqlite:///", "names no file"),
        ("sqlite:////var/lib/", "names no file"),
        ("sqlite:///shop.db?mode=ro", "no options"),
        ("sqlite:///a%00b", "NUL"),
        ("sqlite:///:memory:", "memory://"),
        ("memory://shop", "nothing after it"),
        ("postgresql://me:secret@host", "names no database"),
        ("postgresql://me:secret@host:port/db", "no URL"),
        ("postgresql://me:secret#1@host/db", "%23"),
        ("postgresql+asyncpg://me:secret@host/db", "own driver"),
        ("mysql://me:secret@host/db", "mysql"),
        ("sqlite://me:secret@host/db", "names a host"),
    ],
)
async def test_a_url_that_cannot_work_is_refused_with_the_reason(url: str, reason: str) -> None:
    """And without the password."""
    with pytest.raises(InvalidRequest, match=reason) as refusal:
        await open_store(url)

    assert "secret" not in str(refusal.value)


def names_in(folder: Path) -> list[str]:
    """Return what is in *folder*."""
    return sorted(path.name for path in folder.iterdir())


async def test_a_file_is_opened(tmp_path: Path) -> None:
    """It is made if it is not there."""
    store = await open_store(f"sqlite:///{tmp_path}/shop.db")

    assert isinstance(store, SqliteStore)
    await store.close()
    assert names_in(tmp_path) == ["shop.db"]


async def test_memory_is_one_store_for_the_whole_process() -> None:
    """A client and a worker of one process see the same runs."""
    first, second = await open_store("memory://"), await open_store("memory://")

    assert isinstance(first, MemoryStore)
    assert first is second
