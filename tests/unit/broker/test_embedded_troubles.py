"""Whatever is wrong with the file: ``BrokerUnavailable``, which names the file and what to do."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from tidewheel.broker.embedded import sqlite_file
from tidewheel.broker.embedded.queue_file import QueueFile
from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.kombu_bridge import KombuBroker
from tidewheel.broker.kombu_wire import Target, Wire, embedded, our_errors
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.topology import Queue, Topology

PLAIN = Topology(queues=(Queue(name="plain"),))


@asynccontextmanager
async def broker_in(path: Path, *, pages_max: int | None = None) -> AsyncIterator[KombuBroker]:
    """Open and close the broker in a file."""
    broker = KombuBroker(embedded(path, pages_max=pages_max))
    try:
        yield broker
    finally:
        await broker.close()


def hello(body: bytes = b"hello") -> Publication:
    """Make something to publish."""
    return Publication(message=Message(body=body, message_id="1"), routing_key="plain")


async def test_a_missing_folder(tmp_path: Path) -> None:
    """Folders are not made by accident; and once it is there, the same broker works."""
    path = tmp_path / "nowhere" / "queues.db"
    async with broker_in(path) as broker:
        with pytest.raises(BrokerUnavailable, match=r"nowhere/queues\.db.*folder exists"):
            await broker.declare(PLAIN)
        with pytest.raises(BrokerUnavailable, match="folder exists"):
            async with broker.consume("plain", prefetch=1):
                pass

        path.parent.mkdir()

        await broker.declare(PLAIN)


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    """A file of something else is not touched."""
    path = tmp_path / "notes.txt"
    path.write_text("dear diary, " * 100)
    async with broker_in(path) as broker:
        with pytest.raises(BrokerUnavailable, match=r"notes\.txt.*not a database"):
            await broker.declare(PLAIN)

    assert path.read_text() == "dear diary, " * 100


async def test_a_database_of_something_else(tmp_path: Path) -> None:
    """Naming the store's own file must not put queues into it."""
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as store:
        store.execute("CREATE TABLE journal (run_id TEXT)")
    async with broker_in(path) as broker:
        with pytest.raises(BrokerUnavailable, match=r"store\.db.*not a file of this broker"):
            await broker.declare(PLAIN)

    with closing(sqlite3.connect(path)) as store:
        assert store.execute("SELECT name FROM sqlite_master").fetchall() == [("journal",)]


async def test_a_file_of_another_release(tmp_path: Path) -> None:
    """A schema that this release does not know is not guessed at."""
    path = tmp_path / "queues.db"
    QueueFile(path).close()
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version = 99")
    async with broker_in(path) as broker:
        with pytest.raises(BrokerUnavailable, match="schema 99"):
            await broker.depth("plain")


async def test_a_damaged_file(tmp_path: Path) -> None:
    """Damage is said to be damage, with the way out."""
    path = tmp_path / "queues.db"
    with closing(QueueFile(path)) as file, file.transaction():
        file.declare_queue(Queue(name="plain"))
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    async with broker_in(path) as broker:
        with pytest.raises(BrokerUnavailable, match="it is damaged; stop all processes and remove it"):
            await broker.publish([hello()])


async def test_a_full_disk_refuses_the_whole_batch_and_recovers(tmp_path: Path) -> None:
    """Nothing of a batch that does not fit is taken; consuming makes room again."""
    async with broker_in(tmp_path / "queues.db", pages_max=30) as broker:
        await broker.declare(PLAIN)
        await broker.publish([hello(b"x" * 30_000)])
        with pytest.raises(BrokerUnavailable, match=r"queues\.db.*disk is full"):
            await broker.publish([hello(), hello(b"x" * 100_000)])
        assert await broker.depth("plain") == 1

        async with broker.consume("plain", prefetch=1) as deliveries:
            await (await anext(deliveries)).acknowledge()

        await broker.publish([hello(b"x" * 30_000)])


async def test_a_file_that_may_not_be_written(tmp_path: Path) -> None:
    """What SQLite says of a read-only file is told in words (permissions do not stop root)."""
    path = tmp_path / "queues.db"
    with closing(QueueFile(path)) as file:
        file.execute("PRAGMA query_only = ON")
        with (
            pytest.raises(BrokerUnavailable, match=r"queues\.db.*check the permissions"),
            our_errors(embedded(path)),
        ):
            file.declare_queue(Queue(name="plain"))


async def test_a_file_that_somebody_keeps_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After waiting for the other process, the error says that it holds the file."""
    monkeypatch.setattr(sqlite_file, "BUSY_S", 0.02)
    path = tmp_path / "queues.db"
    async with broker_in(path) as broker:
        await broker.declare(PLAIN)
        other = QueueFile(path)
        with other.transaction(), pytest.raises(BrokerUnavailable, match=r"queues\.db.*keeps it locked"):
            await broker.publish([hello()])
        other.close()

        await broker.publish([hello()])


async def test_a_file_that_was_removed_is_noticed(tmp_path: Path) -> None:
    """Publisher and consumer say so, instead of writing where nobody reads; then they start anew."""
    path = tmp_path / "queues.db"
    async with broker_in(path) as broker:
        await broker.declare(PLAIN)
        async with broker.consume("plain", prefetch=1) as deliveries:
            waiting = asyncio.ensure_future(anext(deliveries))

            for suffix in ("", "-wal", "-shm"):
                path.with_name(f"queues.db{suffix}").unlink()

            with pytest.raises(BrokerUnavailable, match=r"queues\.db.*removed or replaced"):
                await asyncio.wait_for(waiting, 10)
            with pytest.raises(BrokerUnavailable, match="removed or replaced"):
                await broker.publish([hello()])
        await broker.declare(PLAIN)
        assert await broker.depth("plain") == 0


async def test_a_consumer_that_was_taken_for_dead_is_told(tmp_path: Path) -> None:
    """What it held belongs to others; its iterator ends, and its late word is harmless."""
    async with broker_in(tmp_path / "queues.db") as broker:
        await broker.declare(PLAIN)
        await broker.publish([hello()])
        async with broker.consume("plain", prefetch=1) as deliveries:
            delivery = await anext(deliveries)
            waiting = asyncio.ensure_future(anext(deliveries))

            with closing(sqlite3.connect(tmp_path / "queues.db")) as file:
                file.execute("DELETE FROM consumer")
                file.commit()

            with pytest.raises(BrokerUnavailable, match="taken for dead"):
                await asyncio.wait_for(waiting, 10)
            await delivery.acknowledge()


async def test_a_consumer_whose_thread_breaks_is_not_deaf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that nobody foresaw ends the iterator too, and what it held goes back."""
    async with broker_in(tmp_path / "queues.db") as broker:
        await broker.declare(PLAIN)
        await broker.publish([hello()])
        async with broker.consume("plain", prefetch=1) as deliveries:
            await anext(deliveries)
            monkeypatch.setattr(Wire, "drain", lambda _: 1 / 0)

            with pytest.raises(BrokerUnavailable, match="ZeroDivisionError"):
                await asyncio.wait_for(anext(deliveries), 10)

        assert await broker.depth("plain") == 1


async def test_an_unreachable_server_is_named_without_its_password() -> None:
    """What kombu raises for other transports is told the same way."""
    broker = KombuBroker(Target(url="pyamqp://me:secret@127.0.0.1:1//"))

    with pytest.raises(BrokerUnavailable, match=r"me:\*\*@127\.0\.0\.1") as caught:
        await broker.publish([hello()])

    assert "secret" not in str(caught.value)
    await broker.close()
