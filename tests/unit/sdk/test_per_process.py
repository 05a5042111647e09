"""A client for each process: connected when it is first used, and never carried over a fork."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.unit.sdk.twins import add
from tidewheel import Client, InvalidRequest, SyncClient
from tidewheel.broker.memory import MemoryBroker
from tidewheel.sdk.per_process import PerProcess
from tidewheel.store.errors import StoreUnavailable
from tidewheel.store.memory import MemoryStore

#: What the programs below begin with. Each process ends with its own code, so that a failed assert is seen.
FORKING = """
import os, sys, threading
from collections.abc import Callable
from tidewheel import InvalidRequest, SyncClient

def in_a_child(act: Callable[[], object]) -> None:
    child = os.fork()
    if not child:
        try:
            act()
        except BaseException as problem:
            print(repr(problem), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def run(program: str, folder: Path) -> str:
    """Run *program*, which forks, as a process of its own on the embedded default; return what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEWHEEL_")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING + program],
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def clients_threads() -> list[str]:
    """The clients' threads that are alive."""
    return [thread.name for thread in threading.enumerate() if thread.name == "tidewheel-client"]


async def connected() -> Client:
    """Connect to a store and a broker of one's own."""
    return await Client.connect(MemoryStore(), MemoryBroker())


def test_a_lazy_client_touches_nothing_until_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file, no thread, no look at the environment; the first verb connects."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEWHEEL_STORE", "nonsense")
    client = SyncClient.lazy()
    before = [*clients_threads(), *tmp_path.iterdir()]
    monkeypatch.setenv("TIDEWHEEL_STORE", "sqlite:///here.db")
    monkeypatch.setenv("TIDEWHEEL_NAMESPACE", "blue")

    with client:
        status = client.start(add, 1).status()
        namespace = client.namespace

    assert before == []
    assert (status, namespace) == ("RUNNING", "blue")
    assert (tmp_path / "here.db").is_file()
    assert clients_threads() == []


def test_a_lazy_client_that_was_never_used_can_be_closed() -> None:
    """There is nothing to let go of; using it afterwards is refused all the same."""
    client = SyncClient.lazy()
    client.close()
    client.close()

    with pytest.raises(InvalidRequest, match="was closed"):
        client.runs()


def test_threads_that_come_first_share_one_attempt_to_connect() -> None:
    """Twenty requests at once on a fresh server make one connection, and wait for it together."""
    attempts = 0
    gate = threading.Event()

    async def connect() -> Client:
        nonlocal attempts
        attempts += 1
        await asyncio.get_running_loop().run_in_executor(None, gate.wait)
        return await connected()

    clients = PerProcess(connect, survives_fork=lambda _: False)
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        listings = [pool.submit(lambda: clients.here().call(Client.runs)) for _ in range(20)]
        gate.set()
        found = [listing.result(30) for listing in listings]
    clients.close()

    assert found == [[]] * 20
    assert attempts == 1


def test_a_store_that_was_away_is_tried_again_at_the_next_use() -> None:
    """A server that came up before its store serves as soon as the store is there."""
    is_away = True

    async def connect() -> Client:
        if is_away:
            raise StoreUnavailable("away")
        return await connected()

    clients = PerProcess(connect, survives_fork=lambda _: False)
    with pytest.raises(StoreUnavailable):
        clients.here().call(Client.runs)
    is_away = False

    assert clients.here().call(Client.runs) == []

    clients.close()


def test_closing_while_it_connects_ends_both() -> None:
    """Whoever waits for the connection is told."""
    is_connecting = threading.Event()

    async def connect() -> Client:
        is_connecting.set()
        await asyncio.Event().wait()
        raise AssertionError

    clients = PerProcess(connect, survives_fork=lambda _: False)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(lambda: clients.here().call(Client.runs))
        assert is_connecting.wait(30)
        clients.close()

        with pytest.raises(InvalidRequest, match="was closed"):
            waiting.result(30)
    assert clients_threads() == []


def test_children_of_a_server_that_never_used_its_client_just_use_it(tmp_path: Path) -> None:
    """The pattern for servers that fork: a lazy client in a module, first used in each child."""
    printed = run(
        """
client = SyncClient.lazy()

def serve() -> None:
    threads = [threading.Thread(target=client.start, args=("add", n)) for n in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert client.handle(client.start("add", 4).run_id).status() == "RUNNING"

for _ in range(3):
    in_a_child(serve)
print(len(client.runs()))
client.close()
""",
        tmp_path,
    )

    assert printed == "15\n"


def test_a_process_that_ends_without_closing_its_client_just_ends(tmp_path: Path) -> None:
    """It does not hang, and says nothing; even while somebody waits for a result."""
    printed = run(
        """
client = SyncClient.connect()
handle = client.start("add", 1)
client.listen()
threading.Thread(target=handle.result, daemon=True).start()
print(handle.status())
""",
        tmp_path,
    )

    assert printed == "RUNNING\n"


def test_a_fork_after_a_use_is_refused_with_what_to_do_where_files_are_open(tmp_path: Path) -> None:
    """SQLite keeps its locks per process; and the parent goes on as if nothing had been."""
    printed = run(
        """
client = SyncClient.connect()
handle = client.start("add", 1)

def serve() -> None:
    for use in (client.runs, lambda: client.start("add", 2)):
        try:
            use()
        except InvalidRequest as refusal:
            assert "before a fork" in str(refusal) and "SyncClient.lazy" in str(refusal)
        else:
            raise AssertionError
    try:
        handle.status()
    except InvalidRequest as refusal:
        assert "made before a fork" in str(refusal)
    client.close()

in_a_child(serve)
print(handle.status(), len(client.runs()))
client.close()
""",
        tmp_path,
    )

    assert printed == "RUNNING 1\n"


def test_a_fork_after_a_use_connects_again_where_that_can_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child has a client of its own; the parent's is not touched."""
    clients = PerProcess(connected, survives_fork=lambda _: True)
    parents = clients.here()
    parents.call(Client.runs)
    parent = os.getpid()

    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        child = clients.here()
        child.call(Client.runs)
        child.close()

    assert os.getpid() == parent
    assert child is not parents
    assert parents.call(Client.runs) == []
    clients.close()


@pytest.mark.parametrize(
    ("store", "broker", "uses_store", "survives"),
    [
        ("postgresql://db/x", "amqp://mq", True, True),
        ("postgresql+psycopg://db/x", "AMQPS://mq", True, True),
        ("sqlite:///x.db", "amqp://mq", True, False),
        ("sqlite:///x.db", "amqp://mq", False, True),
        ("postgresql://db/x", "embedded:///x.db", True, False),
        ("postgresql://db/x", "embedded:///x.db", False, False),
        ("memory://", "memory://", True, False),
        ("memory://", "memory://", False, False),
        (None, None, True, False),
        (None, None, False, False),
        (None, "amqp://mq", False, True),
    ],
)
def test_only_servers_are_connected_to_again_after_a_fork(
    store: str | None, broker: str | None, uses_store: bool, survives: bool
) -> None:
    """What is in files or in memory is the parent's, if the parent has used it."""
    client = SyncClient.lazy(store, broker)
    used = PerProcess(connected, survives_fork=lambda _: False)
    parents = used.here()
    if uses_store:
        parents.call(Client.runs)

    assert client._clients._survives_fork([parents]) is survives

    used.close()


def test_a_request_that_is_interrupted_while_it_connects_leaves_no_error_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody waits for the failed attempt any more, and asyncio does not complain about it."""
    gate = threading.Event()

    async def connect() -> Client:
        await asyncio.get_running_loop().run_in_executor(None, gate.wait)
        raise StoreUnavailable("away")

    clients = PerProcess(connect, survives_fork=lambda _: False)
    here = clients.here()
    waiting = here.thread._submitted(here._do(Client.runs))
    waiting.cancel()
    gate.set()
    with pytest.raises(StoreUnavailable):
        here.call(Client.runs)
    clients.close()

    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
