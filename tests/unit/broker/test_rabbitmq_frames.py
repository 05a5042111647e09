"""What our frames say is what pamqp reads, and what pamqp writes is what we read."""

from __future__ import annotations

import datetime as dt
import random

import pytest
from pamqp import commands, frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from tidewheel.broker.message import Message, Publication
from tidewheel.broker.rabbitmq import frames
from tidewheel.broker.rabbitmq.incoming import Assembly
from tidewheel.journal.errors import InvalidRequest

FRAME_MAX = 4096


def unmarshal(data: bytes) -> list[tuple[int, object]]:
    """Let pamqp read frames, with the channel of each."""
    read: list[tuple[int, object]] = []
    while data:
        size, channel, value = frame.unmarshal(data)
        read.append((channel, value))
        data = data[size:]
    return read


def payload(value: frame.FrameTypes) -> bytes:
    """Let pamqp write a frame, and return what is in it."""
    return frame.marshal(value, 1)[7:-1]


@pytest.mark.parametrize(("lasting", "mode"), [(True, 2), (False, 1)])
@pytest.mark.parametrize("size", [0, 1, FRAME_MAX - 8, FRAME_MAX - 7, 3 * FRAME_MAX])
def test_pamqp_reads_what_we_publish(size: int, lasting: bool, mode: int) -> None:
    """Mandatory, and persistent if it is to last, with id, headers and expiry; the body in fitting pieces."""
    body = random.Random(size).randbytes(size)
    sent = Message(body=body, message_id="one", headers={"ce-type": "Ä", "": "x" * 300}, expires_s=1.5)
    publication = Publication(message=sent, exchange="events", routing_key="a.b", lasting=lasting)

    read = unmarshal(frames.PublicationWriter(7, FRAME_MAX).frames(publication))

    assert {channel for channel, _ in read} == {7}
    (_, publish), (_, header), *pieces = read
    assert isinstance(publish, commands.Basic.Publish)
    assert (publish.exchange, publish.routing_key, publish.mandatory) == ("events", "a.b", True)
    assert isinstance(header, ContentHeader)
    properties = header.properties
    assert (header.body_size, properties.delivery_mode, properties.message_id) == (size, mode, "one")
    assert (properties.headers, properties.expiration) == (sent.headers, "1500")
    assert b"".join(piece.value for _, piece in pieces if isinstance(piece, ContentBody)) == body


def test_addresses_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each address is written right, also after others were forgotten."""
    monkeypatch.setattr(frames, "ADDRESSES_MAX", 3)
    writer = frames.PublicationWriter(1, FRAME_MAX)
    keys = [f"q{number % 5}" for number in range(20)]

    read = [
        unmarshal(writer.frames(Publication(message=Message(body=b"", message_id=""), routing_key=key)))
        for key in keys
    ]

    assert [first[0][1].routing_key for first in read] == keys  # type: ignore[attr-defined]  # a publish


@pytest.mark.parametrize(
    ("publication", "says"),
    [
        (Publication(message=Message(body=b"", message_id="x" * 256), routing_key="q"), "the message's id"),
        (Publication(message=Message(body=b"", message_id=""), routing_key="ä" * 128), "routing key has 256"),
        (
            Publication(message=Message(body=b"", message_id="", headers={"h" * 256: ""}), routing_key="q"),
            "name",
        ),
        (
            Publication(
                message=Message(body=b"", message_id="1", headers={"h": "x" * FRAME_MAX}), routing_key="q"
            ),
            "headers of message '1' take",
        ),
        (
            Publication(message=Message(body=bytes(frames.BODY_MAX + 1), message_id="1"), routing_key="q"),
            "message '1' has 16777217 bytes",
        ),
    ],
)
def test_what_would_cost_the_connection_is_refused(publication: Publication, says: str) -> None:
    """RabbitMQ answers some of these by closing the connection, which others use too."""
    with pytest.raises(InvalidRequest, match=says):
        frames.PublicationWriter(1, FRAME_MAX).frames(publication)


def test_pamqp_reads_how_we_settle() -> None:
    """Acknowledge one, acknowledge many, give back, let go."""
    written = (
        frames.acknowledgement(3, 2**40, multiple=False)
        + frames.acknowledgement(3, 5, multiple=True)
        + frames.rejection(3, 6, requeue=True)
        + frames.rejection(3, 7, requeue=False)
    )

    read = [value for _, value in unmarshal(written)]

    assert [value.name for value in read] == 2 * ["Basic.Ack"] + 2 * ["Basic.Reject"]  # type: ignore[attr-defined]  # methods
    assert [value.delivery_tag for value in read] == [2**40, 5, 6, 7]  # type: ignore[attr-defined]  # methods
    assert [read[0].multiple, read[1].multiple] == [False, True]  # type: ignore[attr-defined]  # acks
    assert [read[2].requeue, read[3].requeue] == [True, False]  # type: ignore[attr-defined]  # rejects


@pytest.mark.parametrize("redelivered", [False, True])
@pytest.mark.parametrize("pieces", [[], [b"all"], [b"in", b" thr", b"ee"]])
def test_we_read_a_delivery(pieces: list[bytes], redelivered: bool) -> None:
    """Whatever its headers are: strings, numbers, what RabbitMQ adds when a message dies."""
    headers = {
        "a": "b",
        "x-delivery-count": 3,
        "when": dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
        "x-death": [{"reason": "expired", "queue": "sticky", "count": 1}],
    }
    deliver = commands.Basic.Deliver(
        consumer_tag="tag", delivery_tag=99, redelivered=redelivered, exchange="e", routing_key="k"
    )
    properties = commands.Basic.Properties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers=headers,  # type: ignore[arg-type]  # a table with a table in it
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration="2500",
        message_id="one",
        timestamp=dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
        app_id="app",
    )
    assembly = Assembly()

    assembly.begin(payload(deliver))
    header = ContentHeader(body_size=sum(map(len, pieces)), properties=properties)
    parts = [assembly.add(frames.HEADER, payload(header))]
    parts += [assembly.add(frames.BODY, payload(ContentBody(piece))) for piece in pieces]

    *before, delivery = parts
    assert before == [None] * len(pieces)
    assert delivery is not None
    assert (delivery.tag, delivery.earlier_deliveries) == (99, 3)
    assert (delivery.message.body, delivery.message.message_id) == (b"".join(pieces), "one")
    assert delivery.message.expires_s == 2.5
    assert delivery.message.headers == {
        "a": "b",
        "when": "2020-01-01 00:00:00+00:00",
        "x-tidewheel-reason": "expired",
        "x-tidewheel-queue": "sticky",
    }


def test_we_read_what_else_the_broker_says() -> None:
    """Confirms, returns, and why it closes or blocks."""
    assert frames.read_confirm(payload(commands.Basic.Ack(delivery_tag=7, multiple=True))) == (7, True)
    assert frames.read_confirm(payload(commands.Basic.Nack(delivery_tag=8))) == (8, False)
    returned = commands.Basic.Return(
        reply_code=312, reply_text="NO_ROUTE", exchange="events", routing_key="a.b"
    )
    assert frames.read_return(payload(returned)) == ("events", "a.b")
    closing = commands.Channel.Close(reply_code=406, reply_text="no", class_id=0, method_id=0)
    assert frames.read_closing(payload(closing)) == (406, "no")
    assert (
        frames.read_blocked(payload(commands.Connection.Blocked(reason="low on memory"))) == "low on memory"
    )


@pytest.mark.parametrize(
    ("method", "prefix"),
    [
        (
            commands.Connection.Close(reply_code=1, reply_text="", class_id=0, method_id=0),
            frames.CONNECTION_CLOSE,
        ),
        (commands.Connection.Blocked(reason=""), frames.CONNECTION_BLOCKED),
        (commands.Connection.Unblocked(), frames.CONNECTION_UNBLOCKED),
        (commands.Channel.Close(reply_code=1, reply_text="", class_id=0, method_id=0), frames.CHANNEL_CLOSE),
        (commands.Basic.Cancel(consumer_tag="", nowait=True), frames.BASIC_CANCEL),
        (commands.Basic.Return(reply_code=1, exchange="", routing_key=""), frames.BASIC_RETURN),
        (
            commands.Basic.Deliver(consumer_tag="", delivery_tag=1, exchange="", routing_key=""),
            frames.BASIC_DELIVER,
        ),
        (commands.Basic.Ack(), frames.BASIC_ACK),
        (commands.Basic.Nack(), frames.BASIC_NACK),
    ],
)
def test_methods_are_known_by_their_first_bytes(method: frame.FrameTypes, prefix: bytes) -> None:
    """Class and method, as the specification numbers them."""
    assert payload(method)[:4] == prefix
