"""What can be wrong with a file: it is named, nothing is written, and the store works again afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.store.driving import Run, a_start, signal
from tidewheel.store.append import Append
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.store.records import RunRef
from tidewheel.store.sqlite.faults import commit_error, concerns_all, translated
from tidewheel.store.sqlite.store import SqliteStore

BIG = "x" * 200_000


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the write lock, as another process would."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")


def move(old: Path, new: Path) -> None:
    """Give a file another name, which nobody has taken."""
    assert not new.exists()
    old.rename(new)


def replace(file: Path, other: Path) -> None:
    """Put a copy of another file in the place of *file*."""
    file.unlink()
    shutil.copy(other, file)


def damage(file: Path) -> None:
    """Overwrite everything after the first page."""
    content = file.read_bytes()
    file.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


def writer_of(store: SqliteStore) -> sqlite3.Connection:
    """Return the connection of the thread that writes."""
    return store._writer._held.get()


async def refused(run: Run, about: str) -> None:
    """Append something, and see that it is refused with the file's name and a reason, and not written."""
    before = await run.story()
    with pytest.raises(StoreUnavailable, match=about) as refusal:
        await run.tell(signal("refused", payload=BIG))
    assert "store.db" in str(refusal.value)
    assert "nothing was written" in str(refusal.value)
    assert await run.story() == before


async def test_a_locked_file_is_told_after_a_while(store: SqliteStore, file: Path) -> None:
    """The store waits for the lock, then says who has it; readers go on meanwhile."""
    run = Run(store, "r")
    await run.start()

    with locked(file):
        await refused(run, "is locked")

    await run.tell(signal("later"))
    assert await run.story() == ["ExecutionStarted", "SignalDelivered"]


async def test_a_file_that_is_being_written_can_be_opened_and_read(store: SqliteStore, file: Path) -> None:
    """Readers do not wait for a writer, and opening is reading."""
    await Run(store, "r").start()

    with locked(file):
        other = await SqliteStore.open(file, busy_timeout_s=0.2)
        found = await other.find(RunRef("default", "r"))
        await other.close()

    assert found is not None


async def test_an_old_sqlite_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its statements would fail one by one, and later."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))

    with pytest.raises(StoreUnavailable, match=r"needs 3\.35\.0 or newer"):
        await SqliteStore.open(tmp_path / "a.db")


async def test_many_callers_wait_for_a_lock_only_once(store: SqliteStore, file: Path) -> None:
    """Whoever shares the transaction that could not begin is told at the same time."""
    run = Run(store, "r")
    await run.start()

    with locked(file):
        before = time.monotonic()
        answers = await asyncio.gather(
            *[run.tell(signal(str(number))) for number in range(40)], return_exceptions=True
        )
        waited_s = time.monotonic() - before

    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert waited_s < 4  # 40 waits of 0.2 s would be 8


async def test_a_full_disk_is_told_and_survived(store: SqliteStore) -> None:
    """Nothing of the append is there; once there is room again, the same append is written."""
    run = Run(store, "r")
    await run.start()
    connection = writer_of(store)
    (pages,) = connection.execute("PRAGMA page_count").fetchone()

    connection.execute(f"PRAGMA max_page_count = {pages}")
    await refused(run, "has no room left")
    connection.execute("PRAGMA max_page_count = 1000000")
    await run.tell(signal("refused", payload=BIG))

    assert await run.story() == ["ExecutionStarted", "SignalDelivered"]


async def test_a_full_disk_hits_only_who_needs_the_room(store: SqliteStore) -> None:
    """Of calls that share a transaction, those that fit are written."""
    run = Run(store, "r")
    await run.start()
    connection = writer_of(store)
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")

    answers = await asyncio.gather(
        run.tell(signal("small")),
        run.tell(signal("big", payload=BIG)),
        run.tell(signal("tiny")),
        return_exceptions=True,
    )

    assert [isinstance(answer, StoreUnavailable) for answer in answers] == [False, True, False]
    assert await run.story() == ["ExecutionStarted", "SignalDelivered", "SignalDelivered"]


async def test_a_file_that_cannot_be_written_is_told(store: SqliteStore) -> None:
    """Reading works on."""
    run = Run(store, "r")
    await run.start()
    connection = writer_of(store)

    connection.execute("PRAGMA query_only = ON")
    await refused(run, "cannot be written")
    connection.execute("PRAGMA query_only = OFF")
    await run.tell(signal("later"))

    assert await run.story() == ["ExecutionStarted", "SignalDelivered"]


async def test_a_file_that_is_gone_is_told_and_not_made_again(store: SqliteStore, file: Path) -> None:
    """Writing to a deleted file would seem to work; put back, it is used again."""
    run = Run(store, "r")
    await run.start()
    away = file.with_suffix(".away")
    move(file, away)

    with pytest.raises(StoreUnavailable, match="is not there"):
        await run.tell(signal())
    with pytest.raises(StoreUnavailable, match="is not there"):
        await run.story()
    with pytest.raises(StoreUnavailable, match="is not there"):
        async with store.transaction():
            pass
    move(away, file)
    await run.tell(signal("later"))

    assert await run.story() == ["ExecutionStarted", "SignalDelivered"]


async def test_another_file_in_its_place_is_told(store: SqliteStore, file: Path, blank: Path) -> None:
    """Its log may be that of the first file: only a new process can know."""
    run = Run(store, "r")
    await run.start()
    replace(file, blank)

    with pytest.raises(StoreUnavailable, match="restart this process"):
        await run.tell(signal())


async def test_what_is_no_database_is_told(tmp_path: Path) -> None:
    """And left as it is."""
    path = tmp_path / "store.db"
    path.write_text("hello world\n" * 1000)

    with pytest.raises(StoreUnavailable, match=r"store\.db is not a SQLite database"):
        await SqliteStore.open(path)

    assert path.read_text() == "hello world\n" * 1000


async def test_a_damaged_file_is_told(store: SqliteStore, file: Path) -> None:
    """What cannot be read is not guessed."""
    run = Run(store, "r")
    await run.start()
    await run.tell(*[signal(str(number), payload="x" * 3000) for number in range(50)])
    await store.close()
    damage(file)

    async def use() -> None:
        again = await SqliteStore.open(file)
        try:
            await again.journal(run.ref)
        finally:
            await again.close()

    with pytest.raises(StoreUnavailable, match="is damaged"):
        await use()


@pytest.mark.parametrize("name", ["missing/store.db", "."])
async def test_a_file_that_cannot_be_made_is_told(tmp_path: Path, name: str) -> None:
    """The folder is missing, or the name is that of a folder."""
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await SqliteStore.open(tmp_path / name)


async def test_a_closed_store_is_told(file: Path) -> None:
    """Whatever is asked of it, after closing it twice."""
    store = await SqliteStore.open(file)
    ref = RunRef("default", "r")
    await store.append([Append(run=ref, start=a_start())])
    waiting = asyncio.create_task(store.changed(30))
    await asyncio.sleep(0.02)
    await store.close()
    await store.close()

    await asyncio.wait_for(waiting, 5)
    await asyncio.wait_for(store.changed(30), 5)
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.append([Append(run=ref, facts=(signal(),))])
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.find(ref)


def failure(code: int) -> sqlite3.OperationalError:
    """Return an error as SQLite's driver raises it."""
    error = sqlite3.OperationalError("it failed")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_IOERR_FSYNC, CommitUnknown),
        (sqlite3.SQLITE_IOERR_WRITE, CommitUnknown),
        (sqlite3.SQLITE_BUSY, StoreUnavailable),
        (sqlite3.SQLITE_FULL, StoreUnavailable),
        (sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY, sqlite3.OperationalError),
    ],
)
def test_a_commit_that_failed_is_unknown_only_where_the_disk_failed(
    code: int, expected: type[Exception]
) -> None:
    """Everything else was rolled back for certain; what is our own mistake stays what it is."""
    assert type(commit_error(failure(code), Path("store.db"))) is expected


def test_our_own_mistakes_are_not_blamed_on_the_file() -> None:
    """A broken constraint is a bug, and concerns only who broke it."""
    mistake = failure(sqlite3.SQLITE_CONSTRAINT_CHECK)

    assert translated(mistake, Path("store.db")) is mistake
    assert not concerns_all(mistake)
    assert not concerns_all(failure(sqlite3.SQLITE_FULL))
    assert concerns_all(failure(sqlite3.SQLITE_BUSY_SNAPSHOT))
