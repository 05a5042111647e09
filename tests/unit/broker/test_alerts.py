"""Alerts as messages: what is on the wire is the contract's, and is read back as it was."""

from __future__ import annotations

import datetime as dt
import json

import msgspec
import pytest

from tidewheel.broker.alerts import (
    KNOWN_ALERTS,
    Alert,
    KnownAlert,
    alert_of,
    publication_of_alert,
    read_alert,
)
from tidewheel.broker.errors import PoisonMessage
from tidewheel.broker.memory import MemoryBroker
from tidewheel.broker.message import Message
from tidewheel.broker.topology import Binding, Queue, Topology, bus_topology

AT = dt.datetime(2026, 3, 1, 12, 0, 0, 250_000, dt.UTC)
ALERT = alert_of(
    "OUTBOX_DEAD_LETTER",
    namespace="shop",
    run_id="order-42",
    summary="event 7 of order-42 was refused 10 times: no queue takes it",
    details={"runSeq": 7, "attempts": 10},
    raised_at=AT,
)
LAG = alert_of("PROJECTOR_LAG_HIGH", namespace="shop", summary="7.5 s behind", raised_at=AT)


def test_an_alert_is_addressed_by_namespace_and_name() -> None:
    """Both are words of the routing key, and it outlives a restart of the broker."""
    publication = publication_of_alert(ALERT)

    assert publication.exchange == "tidewheel.alerts"
    assert publication.routing_key == "shop.OUTBOX_DEAD_LETTER"
    assert publication.lasting


def test_headers_are_those_of_cloudevents_in_binary_mode() -> None:
    """As events have them; the type is the alert's name."""
    message = publication_of_alert(ALERT).message

    assert message.content_type == "application/json"
    assert message.headers == {
        "ce-specversion": "1.0",
        "ce-id": message.message_id,
        "ce-type": "OUTBOX_DEAD_LETTER",
        "ce-source": "/tidewheel/shop",
        "ce-subject": "order-42",
        "ce-time": "2026-03-01T12:00:00.250000Z",
    }


def test_an_alert_about_no_single_run_has_no_subject() -> None:
    """In the body the run is null."""
    message = publication_of_alert(LAG).message

    assert "ce-subject" not in message.headers
    assert json.loads(message.body)["runId"] is None


def test_the_body_has_the_contracts_words_in_their_order() -> None:
    """The body is fixed: consumers in other languages rely on it."""
    body = json.loads(publication_of_alert(ALERT).message.body)

    assert list(body) == [
        "alert", "severity", "namespace", "runId", "summary", "action", "details", "raisedAt",
    ]  # fmt: skip
    assert (body["alert"], body["severity"]) == ("OUTBOX_DEAD_LETTER", "P1")
    assert body["action"] == KNOWN_ALERTS["OUTBOX_DEAD_LETTER"].action
    assert body["details"] == {"runSeq": 7, "attempts": 10}


def test_an_alert_published_again_is_the_same_message() -> None:
    """Consumers dedupe by its id; another alert has another."""
    turned = msgspec.structs.replace(ALERT, details=dict(reversed(ALERT.details.items())))
    later = msgspec.structs.replace(ALERT, raised_at=AT + dt.timedelta(seconds=1))

    assert publication_of_alert(turned) == publication_of_alert(ALERT)
    ids = {publication_of_alert(alert).message.message_id for alert in (ALERT, LAG, later)}
    assert len(ids) == 3


@pytest.mark.parametrize("alert", [ALERT, LAG])
def test_what_is_read_is_what_was_published(alert: Alert) -> None:
    """Nothing is lost on the way."""
    assert read_alert(publication_of_alert(alert).message) == alert


def test_fields_and_alerts_that_nobody_knows_are_tolerated() -> None:
    """A later release may say more, and raise others."""
    body = publication_of_alert(ALERT).message.body
    changed = body.replace(b'"OUTBOX_DEAD_LETTER"', b'"INVENTED"')[:-1] + b',"invented":1}'

    read = read_alert(Message(body=changed, message_id="m"))

    assert read == msgspec.structs.replace(ALERT, alert="INVENTED")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"alert": 1}', b"[" * 100_000, b'{"alert":"A","severity":"P0"}'],
)
def test_what_is_no_alert_is_poison(body: bytes) -> None:
    """Whatever the bytes are, the reader is told, and does not fail."""
    with pytest.raises(PoisonMessage, match="not an alert"):
        read_alert(Message(body=body, message_id="m"))


def test_a_moment_without_an_offset_is_refused() -> None:
    """It would be another moment on another machine."""
    body = publication_of_alert(ALERT).message.body.replace(b'Z"}', b'"}')

    with pytest.raises(PoisonMessage, match=r"raisedAt"):
        read_alert(Message(body=body, message_id="m"))


@pytest.mark.parametrize("known", KNOWN_ALERTS.values(), ids=KNOWN_ALERTS)
def test_a_known_alert_says_what_it_means_and_what_to_do(known: KnownAlert) -> None:
    """In whole sentences, since people read them at night."""
    assert KNOWN_ALERTS[known.name] == known
    for text in (known.meaning, known.action):
        assert text[0].isupper()
        assert text.endswith(".")


@pytest.mark.parametrize("pattern", ["shop.*", "*.OUTBOX_DEAD_LETTER", "#"])
async def test_an_alert_reaches_whoever_bound_a_queue_for_it(pattern: str) -> None:
    """Over the exchange that is declared for them."""
    broker = MemoryBroker(now=lambda: 0.0)
    await broker.declare(bus_topology())
    mine = Topology(queues=(Queue(name="pager"),), bindings=(Binding("tidewheel.alerts", "pager", pattern),))
    await broker.declare(mine)

    await broker.publish([publication_of_alert(ALERT)])

    async with broker.consume("pager", prefetch=1) as deliveries:
        delivery = await anext(deliveries)
        assert read_alert(delivery.message) == ALERT
