"""When a client opens its store: at the first verb that needs it, and never for a start by message."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import secrets
from pathlib import Path
from typing import Any

import pytest

from tests.unit.sdk.twins import add
from tidewheel import Client, InvalidRequest, SyncClient
from tidewheel.broker.memory import MemoryBroker
from tidewheel.sdk.client_store import NO_STORE, is_nearby, lacks_store
from tidewheel.sdk.connection import Connection
from tidewheel.sdk.limits import Limits
from tidewheel.sdk.on_demand import OnDemand
from tidewheel.sdk.settings import ConnectionSettings
from tidewheel.store.errors import StoreUnavailable
from tidewheel.store.protocol import Store

DAY_S = 86_400.0


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An empty folder, and an environment that says nothing of a store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEWHEEL_STORE", raising=False)
    return monkeypatch


def test_a_start_by_message_makes_no_store_and_the_next_verb_does(tmp_path: Path) -> None:
    """Connecting does not either; the message goes into the broker's own file."""
    with SyncClient.connect(f"sqlite:///{tmp_path}/store.db", f"embedded:///{tmp_path}/queues.db") as client:
        connected = sorted(path.name for path in tmp_path.iterdir())
        client.publish_start(add, 1, run_id="a")
        published = {path.name for path in tmp_path.iterdir()}
        client.start(add, 1, run_id="b")

        assert connected == []
        assert "queues.db" in published
        assert "store.db" not in published
        assert [run.run_id for run in client.runs()] == ["b"]


def test_a_store_that_was_away_is_opened_by_the_next_verb(tmp_path: Path) -> None:
    """The client stays usable; what failed says where."""
    folder = tmp_path / "later"
    with SyncClient.connect(f"sqlite:///{folder}/store.db", f"embedded:///{tmp_path}/queues.db") as client:
        handle = client.publish_start(add, 1)
        for verb in (handle.status, client.runs, lambda: client.start(add, 1)):
            with pytest.raises(StoreUnavailable, match="later"):
                verb()
        folder.mkdir()

        assert client.runs() == []


def test_the_time_in_an_id_is_the_stores_once_that_is_open(tmp_path: Path) -> None:
    """Before it is this machine's: a start by message asks nobody."""

    async def ids() -> list[str]:
        places = f"sqlite:///{tmp_path}/store.db", f"embedded:///{tmp_path}/queues.db"
        async with await Client.connect(*places, clock=lambda: DAY_S) as client:
            made = [(await client.publish_start(add, 1)).run_id, (await client.start(add, 1)).run_id]
            return [*made, (await client.publish_start(add, 1)).run_id]

    before, started, after = asyncio.run(ids())

    assert before < started < after
    assert before.startswith("add-000")
    assert not started.startswith("add-000")


async def test_closing_while_the_store_is_opened_tells_who_waits_for_it() -> None:
    """They were not cancelled themselves: that would be for whoever cancels them to say."""
    opening = OnDemand(_never, name="opening")
    now = dt.datetime.fromtimestamp(DAY_S, dt.UTC)
    connection = Connection(
        opening, MemoryBroker(), "default", limits=Limits(), now=now, token_bytes=secrets.token_bytes
    )
    owned = contextlib.AsyncExitStack()
    owned.push_async_callback(opening.take)
    client = Client(connection, owned=owned)
    waiting, cancelled = (asyncio.create_task(client.runs()) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    await client.close()

    with pytest.raises(InvalidRequest, match="was closed"):
        await waiting
    with pytest.raises(asyncio.CancelledError):
        await cancelled


async def _never() -> Store:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("url", ["postgresql://host", "mongodb://host/db", "sqlite://host/file.db"])
async def test_what_can_never_be_opened_is_refused_when_it_connects(url: str) -> None:
    """Nobody has to wait for the first request to find a mistake in the configuration."""
    with pytest.raises(InvalidRequest):
        await Client.connect(url, "memory://")


@pytest.mark.parametrize(
    ("url", "nearby"),
    [
        ("memory://", True),
        ("embedded://", True),
        ("SQLite:///x.db", True),
        ("sqlite3:///x.db", True),
        ("postgresql+psycopg://db/x", False),
        ("amqps://mq", False),
        ("redis://r", False),
    ],
)
def test_what_is_in_the_process_or_in_a_file_is_nearby(url: str, nearby: bool) -> None:
    """Servers are not."""
    assert is_nearby(url) is nearby


@pytest.mark.parametrize(
    ("store", "variable", "broker", "file", "lacks"),
    [
        (None, None, "amqp://mq", False, True),
        (None, "", "amqp://mq", False, True),
        (None, None, "amqp://mq", True, False),
        (None, None, None, False, False),
        (None, None, "memory://", False, False),
        (None, "sqlite:///tidewheel.db", "amqp://mq", False, False),
        (None, "postgresql://db/x", "amqp://mq", False, False),
        ("sqlite:///tidewheel.db", None, "amqp://mq", False, False),
        (None, None, object(), False, False),
    ],
)
def test_a_client_of_a_server_that_nobody_told_of_a_store_has_none(
    store: str | None,
    variable: str | None,
    broker: Any,
    file: bool,
    lacks: bool,
    bare: pytest.MonkeyPatch,
) -> None:
    """Unless the file of the default is there: then somebody works with it."""
    if variable is not None:
        bare.setenv("TIDEWHEEL_STORE", variable)
    if file:
        Path("tidewheel.db").touch()
    url = broker if isinstance(broker, str) else None
    settings = ConnectionSettings.from_environment(store=store, broker=url)

    assert lacks_store(settings, store, broker) == (NO_STORE if lacks else None)
