"""The blocking client: the same verbs from any thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.sdk.twins import add, plain
from tidewheel import Client, InvalidRequest, NotFound, SyncClient
from tidewheel.broker.memory import MemoryBroker
from tidewheel.broker.topology import COMMANDS, work_topology
from tidewheel.journal import events as ev
from tidewheel.sdk import connection
from tidewheel.sdk.hinting import publications
from tidewheel.store.append import Append, Moves
from tidewheel.store.errors import StoreUnavailable
from tidewheel.store.memory import MemoryStore
from tidewheel.store.records import RunRef


class Twins:
    """A store and a broker in memory, which live in the client's own thread."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.broker = MemoryBroker()
        self.client = SyncClient.connect(self.store, self.broker)

    def complete(self, run_id: str, result: Any) -> None:
        """End a run as a worker does."""
        self.client._clients.here().call(lambda _: self._complete(run_id, result))

    async def _complete(self, run_id: str, result: Any) -> None:
        record = self.store.rows.run(RunRef("default", run_id))
        assert record is not None
        ended = ev.ExecutionCompleted(result=ev.Result(ok=result))
        moves = Moves(expected=record.token, token=b"x", base_seq=record.last_seq, events=[ended])
        (answer,) = await self.store.append([Append(run=record.ref, moves=moves)])
        await self.broker.declare(work_topology("default", ["default"]))
        await self.broker.publish(publications([answer]))


def names_of_threads() -> list[str]:
    """The clients' threads that are alive."""
    return [thread.name for thread in threading.enumerate() if thread.name == "tidewheel-client"]


@pytest.fixture
def twins() -> Iterator[Twins]:
    """A client, closed afterwards."""
    made = Twins()
    yield made
    made.client.close()


def test_a_start_by_message_is_a_command_that_any_worker_takes(twins: Twins) -> None:
    """The run is not there before somebody has taken it, and the handle knows its id."""
    handle = twins.client.publish_start(add, 1, run_id="a")

    depth = twins.client._clients.here().call(lambda _: twins.broker.depth(COMMANDS))
    assert (handle.run_id, depth) == ("a", 1)
    with pytest.raises(NotFound):
        handle.status()


def test_the_verbs_are_those_of_the_client(twins: Twins) -> None:
    """A run can be started, told, listed and asked for its result, all blocking."""
    client = twins.client
    handle = client.start(add, 1, run_id="a")
    handle.signal("n", 1, request_id="r")
    handle.signal("n", 1, request_id="r")
    with pytest.raises(NotFound):
        handle.resolve("p", 1)
    with pytest.raises(NotFound):
        handle.reject("p", "x")
    before = handle.status()
    twins.complete("a", 2)
    handle.cancel("too late")

    assert (before, handle.status()) == ("RUNNING", "COMPLETED")
    assert handle.result(timeout=10) == 2
    assert client.handle("a").result() == 2
    assert not client.start(add, 1, run_id="a").mismatch
    assert client.start(add, 5, run_id="a").mismatch
    assert client.start(add, 1, run_id="a").existed
    assert len(handle.journal()) == 3
    assert [event.event_type for event in handle.events()] == ["RunStarted", "RunCompleted"]
    assert handle.describe().status == "COMPLETED"
    assert handle.state() == {}
    assert [run.run_id for run in client.runs(workflow="add")] == ["a"]
    assert (handle.run_id, repr(handle)) == ("a", "<SyncHandle a>")
    assert (client.namespace, repr(client)) == ("default", "<SyncClient>")


def test_errors_are_those_of_the_client(twins: Twins) -> None:
    """What the client raises reaches the caller as itself."""
    with pytest.raises(InvalidRequest, match="not a workflow"):
        twins.client.start(plain)
    with pytest.raises(InvalidRequest, match="run id"):
        twins.client.handle("a b")
    with pytest.raises(NotFound):
        twins.client.handle("ghost").status()
    with pytest.raises(TimeoutError, match="did not end within 0 seconds"):
        twins.client.start(add, 1).result(timeout=0)


def test_a_result_is_waited_for(twins: Twins) -> None:
    """A thread that waits is told when the run ends."""
    assert twins.client.listen()
    handle = twins.client.start(add, 1, run_id="a")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(handle.result, 30)
        twins.complete("a", 2)

        assert waiting.result(30) == 2


def test_any_number_of_threads_may_use_it(twins: Twins) -> None:
    """A hundred starts with one key from eight threads are one run."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        starts = [pool.submit(twins.client.start, add, 1, idempotency_key="k") for _ in range(100)]
        handles = [start.result(30) for start in starts]

    assert len({handle.run_id for handle in handles}) == 1


def test_it_works_where_an_event_loop_is_running(twins: Twins) -> None:
    """As in a notebook; it blocks that loop for as long as it takes."""

    async def main() -> str:
        return twins.client.start(add, 1).status()

    assert asyncio.run(main()) == "RUNNING"


def test_its_own_thread_is_refused(twins: Twins) -> None:
    """It would wait for itself for ever."""

    async def inside(_: Client) -> None:
        twins.client.runs()

    with pytest.raises(InvalidRequest, match="in its own thread"):
        twins.client._clients.here().call(inside)


def test_closing_twice_is_fine_and_using_it_after_is_not() -> None:
    """The thread is gone; every verb says that the client was closed."""
    twins = Twins()
    handle = twins.client.start(add, 1)
    with twins.client:
        pass
    twins.client.close()

    assert names_of_threads() == []
    with pytest.raises(InvalidRequest, match="was closed"):
        handle.status()
    with pytest.raises(InvalidRequest, match="was closed"):
        twins.client.start(add, 1)


def test_closing_ends_the_waiting_of_other_threads() -> None:
    """Whoever waits for a result is told."""
    twins = Twins()
    handle = twins.client.start(add, 1)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(handle.result)
        twins.client.listen()
        twins.client.close()

        with pytest.raises(InvalidRequest, match="was closed"):
            waiting.result(30)


def test_an_interrupt_ends_the_waiting_and_leaves_the_client_usable(twins: Twins) -> None:
    """Ctrl-C while waiting is raised where one waits; nothing goes on behind one's back."""

    async def waiting(client: Client) -> object:
        return client._connection.replies._waiting

    handle = twins.client.start(add, 1)
    twins.client.listen()
    # Python has no such handler where it was started in the background, with the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        handle.result(timeout=30)
    timer.join()
    signal.signal(signal.SIGINT, before)

    assert handle.status() == "RUNNING"
    assert twins.client._clients.here().call(waiting) == {}


def test_a_failed_connect_leaves_no_thread() -> None:
    """The error is the store's, and nothing stays behind."""

    class Away(MemoryStore):
        async def now(self) -> Any:
            raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        SyncClient.connect(Away(), MemoryBroker())

    assert names_of_threads() == []


def starts_within_s(client: SyncClient) -> float:
    """Start a run, and tell how long that took."""
    began_s = time.monotonic()
    client.start(add, 1)
    return time.monotonic() - began_s


def test_a_broker_that_refuses_delays_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """RabbitMQ is down: the starts are committed, and one warning says what becomes of them."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        nobody = f"amqp://127.0.0.1:{probe.getsockname()[1]}"
    with SyncClient.connect(MemoryStore(), nobody) as client:
        slowest_s = max(starts_within_s(client) for _ in range(5))
        kept = len(client.runs())

    assert slowest_s < connection.HINT_TIMEOUT_S
    assert kept == 5
    (warning,) = caplog.messages
    assert "the work is stored, but no worker was told" in warning
    assert "the keeper will tell one" in warning


def test_a_broker_that_never_answers_holds_up_one_caller_for_a_moment(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody accepts the connection and says nothing: the first waits its time, the others do not."""
    monkeypatch.setattr(connection, "HINT_TIMEOUT_S", 0.3)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        SyncClient.connect(MemoryStore(), f"amqp://127.0.0.1:{silent.getsockname()[1]}") as client,
    ):
        first_s, *_ = [starts_within_s(client) for _ in range(4)]
        kept = len(client.runs())
        tried = waiting_at(silent)

    assert 0.3 <= first_s < 5
    assert kept == 4
    assert tried == 1
    assert len(caplog.messages) == 1


def waiting_at(server: socket.socket) -> int:
    """Count those who connected and were not spoken to, and hang up on them."""
    server.setblocking(False)
    for count in itertools.count():
        try:
            server.accept()[0].close()
        except BlockingIOError:
            return count
    raise AssertionError


def test_the_password_of_a_broker_is_in_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """What is logged may be read by many."""
    with SyncClient.connect(MemoryStore(), "amqp://me:hunter2@127.0.0.1:1/shop") as client:
        client.start(add, 1)

    assert "127.0.0.1:1" in caplog.text
    assert "hunter2" not in caplog.text
