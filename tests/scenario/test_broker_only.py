"""Programs that may reach RabbitMQ and nothing else start runs all the same."""

from __future__ import annotations

import concurrent.futures
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.scenario.messaging import depth, read, shop_at_work
from tidewheel import Client, InvalidRequest, SyncClient
from tidewheel.broker.kombu_rabbitmq import PUBLISHERS_MAX
from tidewheel.broker.topology import COMMANDS
from tidewheel.sdk.client_store import NO_STORE
from tidewheel.store.errors import StoreUnavailable

PATIENCE_S = 60.0


class Nowhere:
    """The address of a store that nobody has; it counts those who call."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"postgresql://shop:hunter2@127.0.0.1:{self._socket.getsockname()[1]}/shop"
        self.calls = 0
        threading.Thread(target=self._refuse, daemon=True).start()

    def _refuse(self) -> None:
        while True:
            try:
                called, _ = self._socket.accept()
            except OSError:
                return
            self.calls += 1
            called.close()

    def close(self) -> None:
        """Hear no more."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def nowhere() -> Iterator[Nowhere]:
    """A store that cannot be had."""
    made = Nowhere()
    yield made
    made.close()


def until_calls(nowhere: Nowhere) -> None:
    """Wait until somebody has called: that is heard of in another thread."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not nowhere.calls:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_start_is_published_while_the_store_is_away_and_the_run_completes(
    nowhere: Nowhere, journals: str, fresh_rabbitmq: str, tmp_path: Path
) -> None:
    """Nothing is asked of the client's store; what needs it says so, and the worker has another one."""
    with SyncClient.connect(nowhere.url, fresh_rabbitmq) as web:
        handle = web.publish_start("fulfil", "1001", 7800, run_id="order-1001")
        made_up = web.publish_start("fulfil", "1002").run_id
        calls = nowhere.calls
        with pytest.raises(StoreUnavailable) as refusal:
            handle.status()
        until_calls(nowhere)

    assert calls == 0
    assert "hunter2" not in str(refusal.value)
    assert depth(fresh_rabbitmq, COMMANDS) == 2
    with (
        shop_at_work(tmp_path, journals, fresh_rabbitmq),
        SyncClient.connect(journals, fresh_rabbitmq) as ops,
    ):
        results = [ops.handle(run_id).result(timeout=PATIENCE_S) for run_id in ("order-1001", made_up)]
    assert results == ["7800 for 1001", "100 for 1002"]


def test_whoever_listens_gets_the_result_over_the_broker_alone(
    nowhere: Nowhere, journals: str, fresh_rabbitmq: str, tmp_path: Path
) -> None:
    """The worker says how the run ended, so a short one is waited for without a look at the store."""
    with (
        shop_at_work(tmp_path, journals, fresh_rabbitmq),
        SyncClient.connect(nowhere.url, fresh_rabbitmq) as web,
    ):
        assert web.listen()
        result = web.publish_start("fulfil", "1001", 7800).result(timeout=PATIENCE_S)

    assert result == "7800 for 1001"


async def test_the_client_of_an_event_loop_needs_the_broker_only_too(
    nowhere: Nowhere, fresh_rabbitmq: str
) -> None:
    """The same verbs, the same rule."""
    async with await Client.connect(nowhere.url, fresh_rabbitmq) as client:
        handle = await client.publish_start("fulfil", "1001")
        calls = nowhere.calls
        with pytest.raises(StoreUnavailable):
            await handle.result(timeout=PATIENCE_S)
        with pytest.raises(StoreUnavailable):
            await client.start("fulfil", "1002")

    assert calls == 0


def test_without_any_store_only_what_needs_one_is_refused(
    fresh_rabbitmq: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said what to set; and no file is made of which nobody would know."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEWHEEL_STORE", raising=False)
    monkeypatch.setenv("TIDEWHEEL_BROKER", fresh_rabbitmq)
    with SyncClient.lazy() as web:
        handle = web.publish_start("fulfil", "1001")
        refusals = []
        for verb in (handle.status, handle.result, handle.journal, handle.cancel, web.runs):
            with pytest.raises(InvalidRequest) as refusal:
                verb()
            refusals.append(str(refusal.value))

    assert refusals == [NO_STORE] * 5
    assert depth(fresh_rabbitmq, COMMANDS) == 1
    assert list(tmp_path.iterdir()) == []


FORKING = """
import os, sys
from tidewheel import SyncClient

client = SyncClient.lazy(broker=sys.argv[1])
client.publish_start("fulfil", "parent", run_id="parent-first")
children = []
for number in range(3):
    child = os.fork()
    if not child:
        for turn in range(5):
            client.publish_start("fulfil", "child", run_id=f"child-{number}-{turn}")
        client.close()
        sys.exit(0)
    children.append(child)
    client.publish_start("fulfil", "parent", run_id=f"parent-{number}")
for child in children:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
client.publish_start("fulfil", "parent", run_id="parent-last")
client.close()
"""


def test_processes_that_were_forked_publish_each_over_connections_of_their_own(
    fresh_rabbitmq: str, tmp_path: Path
) -> None:
    """Also where the parent has published before the fork: no store was opened, so none is carried over."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEWHEEL_")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, fresh_rabbitmq],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []
    started = [msgspec.json.decode(message.body)["run_id"] for message in read(fresh_rabbitmq, COMMANDS, 20)]
    assert sorted(started) == sorted(
        [f"child-{number}-{turn}" for number in range(3) for turn in range(5)]
        + [f"parent-{word}" for word in ("first", "0", "1", "2", "last")]
    )


def test_many_threads_publish_at_once(nowhere: Nowhere, fresh_rabbitmq: str) -> None:
    """Each start is taken once, and they share a few connections."""
    with (
        SyncClient.lazy(nowhere.url, fresh_rabbitmq) as web,
        concurrent.futures.ThreadPoolExecutor(4 * PUBLISHERS_MAX) as pool,
    ):
        handles = list(pool.map(lambda number: web.publish_start("fulfil", str(number)), range(400)))

    started = [msgspec.json.decode(message.body)["run_id"] for message in read(fresh_rabbitmq, COMMANDS, 400)]
    assert sorted(started) == sorted(handle.run_id for handle in handles)
    assert len(set(started)) == 400
    assert nowhere.calls == 0
