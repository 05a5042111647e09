"""Public events as messages: what is on the wire is the contract's, and is read back as it was."""

from __future__ import annotations

import datetime as dt
import json

import msgspec
import pytest

from tidewheel.broker.bus import publication_of_event, read_event
from tidewheel.broker.errors import PoisonMessage
from tidewheel.broker.message import Message
from tidewheel.broker.topology import SHARDS, Binding, projector_topology, shard_key
from tidewheel.journal.public import PublicEvent, event_id, idempotency_key

KEY = idempotency_key("order-42", "charge", 1, "StepCompleted", "v2")
EVENT = PublicEvent(
    run_id="order-42",
    run_seq=7,
    prev_seq=5,
    event_type="StepCompleted",
    workflow="fulfil",
    step_id="charge",
    step_name="charge_card",
    engine_attempt_id="3",
    plan_version="v2",
    emitted_at=dt.datetime(2026, 3, 1, 12, 0, 0, 250_000, dt.UTC),
    persisted_at=dt.datetime(2026, 3, 1, 12, 0, 0, 250_000, dt.UTC),
    caused_by_signal_id="sig-1",
    parent_event_id="0" * 32,
    data={"result": {"receipt": "r-1"}},
    idempotency_key=KEY,
)


def test_an_event_is_addressed_by_its_topic() -> None:
    """Namespace, workflow and type are the words of the routing key."""
    publication = publication_of_event(EVENT, "shop")
    assert publication.exchange == "tidewheel.events"
    assert publication.routing_key == "shop.fulfil.StepCompleted"
    assert publication.lasting


def test_a_run_is_always_addressed_to_the_same_shard() -> None:
    """Beside its topic an event has the key of its run's shard, and every shard has its queue."""
    also = {publication_of_event(msgspec.structs.replace(EVENT, run_seq=n), "shop").also for n in range(3)}
    keys = {shard_key("shop", f"order-{number}") for number in range(200)}
    bound = {binding.key for binding in projector_topology("shop").bindings}

    assert also == {(shard_key("shop", "order-42"),)}
    assert keys == bound
    assert len(bound) == SHARDS
    assert not any("." in key for key in bound)


def test_a_single_queue_takes_every_event_of_its_namespace() -> None:
    """Where there are no further keys one queue is bound by the topic."""
    topology = projector_topology("shop", 1)

    assert topology.bindings == (Binding("tidewheel.events", "tidewheel.shop.projector.0", "shop.#"),)
    assert {queue.name for queue in topology.queues} == {
        "tidewheel.shop.projector.0",
        "tidewheel.shop.projector.dlq",
    }


def test_headers_are_those_of_cloudevents_in_binary_mode() -> None:
    """A consumer that speaks CloudEvents needs nothing of ours."""
    message = publication_of_event(EVENT, "shop").message
    assert message.content_type == "application/json"
    assert message.message_id == event_id(KEY)
    assert message.headers == {
        "ce-specversion": "1.0",
        "ce-id": event_id(KEY),
        "ce-type": "StepCompleted",
        "ce-source": "/tidewheel/shop",
        "ce-subject": "order-42",
        "ce-time": "2026-03-01T12:00:00.250000Z",
        "ce-idempotencykey": KEY,
    }


def test_the_body_has_the_contracts_words_in_their_order() -> None:
    """The body is fixed: consumers in other languages rely on it."""
    body = json.loads(publication_of_event(EVENT, "shop").message.body)
    assert list(body) == [
        "runId", "runSeq", "prevSeq", "eventType", "workflow", "stepId", "stepName", "logicalAttemptId",
        "engineAttemptId", "planVersion", "emittedAt", "persistedAt", "causedBySignalId", "parentEventId",
        "data",
    ]  # fmt: skip
    assert body["prevSeq"] == 5
    assert body["logicalAttemptId"] == "1"
    assert body["data"] == {"result": {"receipt": "r-1"}}


def test_the_first_event_of_a_run_has_no_previous_one() -> None:
    """Null tells a reader that it has missed nothing before."""
    first = msgspec.structs.replace(EVENT, prev_seq=None)
    assert json.loads(publication_of_event(first, "shop").message.body)["prevSeq"] is None


def test_what_is_read_is_what_was_published() -> None:
    """Nothing is lost on the way."""
    assert read_event(publication_of_event(EVENT, "shop").message) == ("shop", EVENT)


def test_fields_that_nobody_knows_are_tolerated() -> None:
    """A later release may say more."""
    message = publication_of_event(EVENT, "shop").message
    more = message.body[:-1] + b',"invented":1}'
    assert read_event(msgspec.structs.replace(message, body=more))[1] == EVENT


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"runId": 1}', b"[" * 100_000])
def test_what_is_no_event_is_poison(body: bytes) -> None:
    """Whatever the bytes are, the reader is told, and does not fail."""
    message = Message(body=body, message_id="m", headers={"ce-source": "/tidewheel/shop"})
    with pytest.raises(PoisonMessage, match="not a public event"):
        read_event(message)


@pytest.mark.parametrize("source", ["", "/elsewhere/shop", "/tidewheel/"])
def test_what_comes_from_elsewhere_is_poison(source: str) -> None:
    """Somebody else may publish to the exchange."""
    message = msgspec.structs.replace(
        publication_of_event(EVENT, "shop").message, headers={"ce-source": source}
    )
    with pytest.raises(PoisonMessage, match="ce-source"):
        read_event(message)
