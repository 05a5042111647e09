"""The embedded transport is one of kombu's: what kombu's users know works with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from amqp.exceptions import ChannelError, NotFound, PreconditionFailed  # type: ignore[import-untyped]  # no types
from kombu import connection as kombu_connection
from kombu import entity, messaging

from tidewheel.broker.kombu_transports import EMBEDDED

kombu: Any = kombu_connection
entities: Any = entity
messages: Any = messaging


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Any]:
    """A connection of kombu's to a new file."""
    with kombu.Connection(
        transport=EMBEDDED, transport_options={"path": str(tmp_path / "queues.db")}
    ) as made:
        yield made


def test_kombus_producer_and_consumer_work(connection: Any) -> None:
    """Declared, published, consumed and acknowledged with kombu's own words, as JSON."""
    exchange = entities.Exchange("events", "topic")
    queue = entities.Queue("mine", exchange, routing_key="a.#")
    received = []

    def take(body: Any, message: Any) -> None:
        received.append(body)
        message.ack()

    producer = messages.Producer(connection)
    producer.publish({"n": 1}, exchange=exchange, routing_key="a.b", declare=[queue])
    with messages.Consumer(connection, [queue], callbacks=[take]):
        connection.drain_events(timeout=5)

    assert received == [{"n": 1}]
    assert queue(connection.default_channel).queue_declare(passive=True).message_count == 0


def test_a_simple_queue_gets_rejects_and_requeues(connection: Any) -> None:
    """What is requeued comes again and says so; what is rejected without dead letters is gone."""
    simple = connection.SimpleQueue("simple")
    simple.put("hello")

    first = simple.get(timeout=5)
    first.requeue()
    again = simple.get(timeout=5)
    again.reject()

    assert [first.payload, again.payload] == ["hello", "hello"]
    assert [first.delivery_info["redelivered"], again.delivery_info["redelivered"]] == [False, True]
    assert simple.qsize() == 0
    simple.close()


def test_nothing_comes_is_a_timeout(connection: Any) -> None:
    """As with every transport of kombu's."""
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_consume("q", no_ack=True, callback=print, consumer_tag="t")

    with pytest.raises(TimeoutError):
        connection.drain_events(timeout=0.02)


def test_without_acknowledging_a_message_is_gone_when_it_is_delivered(connection: Any) -> None:
    """``no_ack`` means that the broker does not wait for a word."""
    channel = connection.channel()
    channel.queue_declare("q")
    messages.Producer(channel).publish("x", routing_key="q")
    received: list[Any] = []

    channel.basic_consume("q", no_ack=True, callback=received.append, consumer_tag="t")
    connection.drain_events(timeout=5)
    channel.close()

    assert [message.payload for message in received] == ["x"]
    assert connection.channel().queue_declare("q", passive=True).message_count == 0


def test_a_mandatory_message_that_no_queue_takes_is_an_error(connection: Any) -> None:
    """Without ``mandatory`` it is dropped, as in AMQP."""
    producer = messages.Producer(connection)

    producer.publish("x", routing_key="nowhere")

    with pytest.raises(ChannelError, match="nowhere"):
        producer.publish("x", routing_key="nowhere", mandatory=True)


@pytest.mark.parametrize("arguments", [{"x-max-length": 5}, {"x-dead-letter-exchange": "dlx"}])
def test_an_argument_that_means_nothing_here_is_refused(connection: Any, arguments: dict[str, Any]) -> None:
    """Ignoring it would promise what is not kept."""
    with pytest.raises(PreconditionFailed, match="has not"):
        connection.channel().queue_declare("q", arguments=arguments)


def test_looking_at_what_is_not_there_is_an_error(connection: Any) -> None:
    """A passive declaration makes nothing."""
    channel = connection.channel()

    with pytest.raises(NotFound):
        channel.queue_declare("q", passive=True)
    with pytest.raises(NotFound):
        channel.exchange_declare("x", passive=True)


def test_recovering_purging_and_unbinding(connection: Any) -> None:
    """The rest of a channel's verbs do what they say."""
    channel = connection.channel()
    channel.queue_declare("q")
    channel.exchange_declare("x", "fanout")
    channel.queue_bind("q", "x")
    producer = messages.Producer(channel)
    producer.publish("1", exchange="x")
    producer.publish("2", exchange="x")
    channel.basic_get("q")

    channel.basic_recover(requeue=True)
    first = channel.basic_get("q")
    purged = channel.queue_purge("q")
    channel.basic_ack(first.delivery_tag, multiple=True)
    channel.queue_unbind("q", "x")
    producer.publish("3", exchange="x")

    assert (first.payload, purged) == ("1", 1)
    assert channel.queue_declare("q", passive=True).message_count == 0
    channel.exchange_delete("x")
    channel.queue_delete("q")
    with pytest.raises(NotFound):
        channel.queue_declare("q", passive=True)


def test_a_consumer_that_slept_lets_the_others_speak_first(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a suspended machine wakes, nobody is taken for dead because of the time it slept."""
    sleeper, other = connection.channel(), connection.channel()
    sleeper.queue_declare("q")
    for number, channel in enumerate((sleeper, other)):
        channel.basic_consume("q", no_ack=False, callback=print, consumer_tag=str(number))
    woken_s = sleeper.file.now_s() + 3600
    monkeypatch.setattr(sleeper.file, "now_s", lambda: woken_s)
    monkeypatch.setattr(other.file, "now_s", lambda: woken_s)

    sleeper.keep_house()
    other.keep_house()
    for channel in (sleeper, other):
        channel.file.sweep()

    sleeper.keep_house()
    other.keep_house()
