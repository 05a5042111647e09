"""A blocking client while RabbitMQ is in trouble: starts are kept, callers go on, hints come back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from tests.servers.rabbitmq import PrivateRabbit
from tidewheel import SyncClient
from tidewheel.broker.topology import work_queue
from tidewheel.sdk import connection
from tidewheel.store.memory import MemoryStore

QUEUE = work_queue("default", "default")
TOLD_AGAIN = "workers are told again"
PATIENCE_S = 30.0
#: Shorter than they are, so that the tests are.
HINT_TIMEOUT_S, HINT_PAUSE_MAX_S = 0.5, 0.5


@pytest.fixture
def client(
    own_rabbit: PrivateRabbit, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SyncClient]:
    """A client of a node that may be troubled; it has started one run."""
    caplog.set_level(logging.INFO, "tidewheel.client")
    monkeypatch.setattr(connection, "HINT_TIMEOUT_S", HINT_TIMEOUT_S)
    monkeypatch.setattr(connection, "HINT_PAUSE_MAX_S", HINT_PAUSE_MAX_S)
    with SyncClient.connect(MemoryStore(), own_rabbit.url) as connected:
        connected.start("fulfil", 0)
        assert hints(own_rabbit) == 1
        yield connected


def hints(node: PrivateRabbit) -> int:
    """How many hints wait for a worker."""
    return next(int(queue["ready"]) for queue in node.list_queues() if queue["name"] == QUEUE)


def until(is_so: Callable[[], bool]) -> None:
    """Ask again and again: a broker that is back does not announce it."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline_s, "this took too long"
        time.sleep(0.05)


def test_connections_that_the_broker_closed_are_replaced_without_anybody_noticing(
    client: SyncClient, own_rabbit: PrivateRabbit, caplog: pytest.LogCaptureFixture
) -> None:
    """They were lost while idle, so the next hint goes over a new one, and is no later for it."""
    closed = own_rabbit.close_all_connections()

    client.start("fulfil", 1)

    assert closed == 1
    assert hints(own_rabbit) == 2
    assert caplog.messages == []


def test_a_client_that_waits_for_results_listens_again(client: SyncClient, own_rabbit: PrivateRabbit) -> None:
    """Its queue of replies has a consumer again soon after the broker hung up on it."""
    assert client.listen()
    own_rabbit.close_all_connections()
    until(lambda: not own_rabbit.list_consumers())

    until(lambda: len(own_rabbit.list_consumers()) == 1)

    assert client.listen()


def test_starts_go_on_while_the_broker_is_down_and_hints_when_it_is_back(
    client: SyncClient, own_rabbit: PrivateRabbit, caplog: pytest.LogCaptureFixture
) -> None:
    """The outage is said once, and so is its end; nothing has to be done about either."""
    own_rabbit.stop_app()
    for number in range(3):
        client.start("fulfil", number)
    own_rabbit.start_app()
    client.start("fulfil", 4)
    until(lambda: TOLD_AGAIN in caplog.messages or not client.start("fulfil", 5))

    assert len(client.runs()) >= 5
    assert [text.partition(",")[0] for text in caplog.messages] == ["the work is stored", TOLD_AGAIN]
    assert hints(own_rabbit) >= 2


def test_a_broker_short_of_memory_holds_up_one_caller_for_a_moment(
    client: SyncClient, own_rabbit: PrivateRabbit, caplog: pytest.LogCaptureFixture
) -> None:
    """RabbitMQ takes no messages and does not say no: the first caller waits its time, the next does not."""
    own_rabbit.raise_memory_alarm()
    try:
        began_s = time.monotonic()
        client.start("fulfil", 1)
        first_s = time.monotonic() - began_s
        client.start("fulfil", 2)
        warnings = list(caplog.messages)
    finally:
        own_rabbit.clear_memory_alarm()
    until(lambda: TOLD_AGAIN in caplog.messages or not client.start("fulfil", 3))

    assert HINT_TIMEOUT_S <= first_s < PATIENCE_S
    assert len(warnings) == 1
    assert "took longer than 0.5 s" in warnings[0]
    assert hints(own_rabbit) >= 2


@pytest.fixture
def tls_node(own_rabbit: PrivateRabbit) -> Iterator[PrivateRabbit]:
    """A node that speaks TLS; asking for the other one finds out whether a node can be had."""
    with PrivateRabbit(tls=True) as node:
        yield node


def test_over_tls_only_the_right_broker_is_told(
    tls_node: PrivateRabbit, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A certificate of an authority that is not trusted is refused, and so is one of another host."""
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(stranger)
    trusted = f"{tls_node.tls_url}?cafile={tls_node.authority_file}"
    urls = [
        trusted,
        f"{tls_node.tls_url}?cafile={stranger}",
        tls_node.tls_url,
        trusted.replace("@localhost:", "@127.1:"),  # the same place by a name that its certificate has not
        f"{tls_node.tls_url}?no_verify_ssl=1",
    ]

    told = []
    for url in urls:
        with SyncClient.connect(MemoryStore(), url) as client:
            client.start("fulfil", 1)
        told.append(hints(tls_node))

    assert told == [1, 1, 1, 1, 2]
    assert [text.count("certificate verify failed") for text in caplog.messages] == [1, 1, 1]
