"""A URL opens one broker, or says what is wrong with it before anything is touched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidewheel.broker.kombu_bridge import KombuBroker
from tidewheel.broker.memory import MemoryBroker
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.opening import open_broker
from tidewheel.broker.rabbitmq.broker import RabbitBroker
from tidewheel.broker.topology import Queue, Topology
from tidewheel.journal.errors import InvalidRequest

STORE = "sqlite:///tidewheel.db"


async def test_memory_is_shared_within_the_process() -> None:
    """Two who open ``memory://`` meet, and one that closes leaves the other alone."""
    one, other = open_broker("memory://", store_url=STORE), open_broker("memory://", store_url="")
    await one.declare(Topology(queues=(Queue(name="shared-by-name"),)))

    await one.close()
    await other.publish(
        [Publication(message=Message(body=b"", message_id="1"), routing_key="shared-by-name")]
    )

    assert isinstance(one, MemoryBroker)
    assert await other.depth("shared-by-name") == 1
    await other.delete_queue("shared-by-name")


@pytest.mark.parametrize(
    ("url", "store_url", "file"),
    [
        ("embedded://", "sqlite:///tidewheel.db", "tidewheel.broker.db"),
        ("embedded://", "sqlite:///data/my.store.sqlite", "data/my.store.broker.sqlite"),
        ("embedded://", "sqlite:///plain", "plain.broker.db"),
        ("embedded://", "sqlite+pysqlite:///tidewheel.db?timeout=5", "tidewheel.broker.db"),
        ("embedded:///other%20file.db", "postgresql://db/x", "other file.db"),
        ("EMBEDDED:///sub/queues.db", "", "sub/queues.db"),
    ],
)
async def test_the_embedded_broker_has_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, store_url: str, file: str
) -> None:
    """Beside the store's by default, or the one that is named; relative as in the store's URL."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).parent.mkdir(exist_ok=True)

    broker = open_broker(url, store_url=store_url)
    await broker.declare(Topology(queues=(Queue(name="q"),)))
    await broker.close()

    assert isinstance(broker, KombuBroker)
    assert broker.lacks == {"single-consumer"}
    assert (tmp_path / file).is_file()


async def test_four_slashes_name_a_file_from_the_root(tmp_path: Path) -> None:
    """As in the URL of a SQLite store."""
    broker = open_broker(f"embedded:///{tmp_path}/queues.db", store_url="")

    assert await broker.depth("q") == 0

    await broker.close()
    assert (tmp_path / "queues.db").is_file()


@pytest.mark.parametrize(
    ("url", "store_url", "says"),
    [
        ("", STORE, "no broker URL"),
        ("embedded", STORE, "no broker URL"),
        ("://x", STORE, "no broker URL"),
        ("memory://somewhere", STORE, "takes nothing"),
        ("embedded://", "postgresql://me:secret@db/x", "beside a SQLite store"),
        ("embedded://", "sqlite://", "in memory"),
        ("embedded://", "sqlite:///:memory:", "in memory"),
        ("embedded://", "memory://", "beside a SQLite store"),
        ("embedded://host/file.db", STORE, "names a host"),
        ("embedded:///file.db?mode=ro", STORE, "no options"),
        ("amqp://guest:secret@localhost:port//", STORE, "cannot be read"),
        ("amqp://guest:secret@localhost/?typo=1", STORE, "no option 'typo'"),
        ("amqps://guest:secret@localhost/?cafile=/no/such/file", STORE, "cafile"),
        ("nosuch://localhost", STORE, "nosuch://"),
        ("filesystem://me:secret@localhost:port", STORE, "filesystem://"),
    ],
)
def test_a_url_that_cannot_work_is_refused(url: str, store_url: str, says: str) -> None:
    """The error says what is wrong, and never the password."""
    with pytest.raises(InvalidRequest, match=says) as caught:
        open_broker(url, store_url=store_url)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["amqp://guest:secret@localhost//", "AMQPS://localhost/vhost?heartbeat=5"])
async def test_rabbitmq_is_opened_and_not_connected(url: str) -> None:
    """Nothing listens there, and nobody notices before it is used."""
    broker = open_broker(url, store_url=STORE)

    assert isinstance(broker, RabbitBroker)
    assert broker.lacks == frozenset()
    await broker.close()
    await broker.close()


def test_opening_in_memory_imports_no_client_of_a_broker() -> None:
    """Kombu and aiormq take long to import; who does not use them does not pay."""
    program = (
        "import sys; from tidewheel.broker.opening import open_broker; "
        "open_broker('memory://', store_url=''); sys.exit(bool({'kombu', 'aiormq'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
