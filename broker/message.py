"""What a broker carries, and where a message goes."""

from __future__ import annotations

import msgspec

#: Why a message became a dead letter, and the queue it came from: headers of every dead letter.
REASON = "x-tidewheel-reason"
ORIGIN = "x-tidewheel-queue"
#: The key that a message was first published under, if it was put into a queue again by the queue's name.
KEY = "x-tidewheel-key"
#: How often a message was delivered before; RabbitMQ's quorum queues use the same header.
DELIVERY_COUNT = "x-delivery-count"
#: The reasons that brokers give themselves; whoever buries a message gives its own.
EXPIRED = "expired"
DELIVERED_TOO_OFTEN = "delivery-limit"


#: What the body of a message is: for our own processes to know, or JSON for anybody.
BYTES = "application/octet-stream"
JSON = "application/json"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes with an id; ``expires_s`` is how long it is worth delivering, in seconds."""

    body: bytes
    message_id: str
    headers: dict[str, str] = {}
    expires_s: float | None = None
    content_type: str = BYTES


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """A message and its address. The empty exchange puts it into the queue named by the routing key.

    One that is not ``lasting`` need not outlive the broker's process, which then has less to do for it.
    ``also`` are further keys that its exchange routes it by. A queue that several of the keys lead to gets
    it once, and consumers do not see them.
    """

    message: Message
    routing_key: str
    exchange: str = ""
    lasting: bool = True
    also: tuple[str, ...] = ()


def dead_letter(message: Message, *, reason: str, queue: str, key: str) -> Message:
    """Return *message* as a dead letter of *queue*: it says why and whence, and expires no more.

    *key* is what it was published under; that can be read from it also when it is put into *queue* again.
    """
    headers = {**message.headers, REASON: reason, ORIGIN: queue, **key_header(key, queue)}
    return msgspec.structs.replace(message, headers=headers, expires_s=None)


def again(message: Message, *, key: str, queue: str) -> Publication:
    """Address *message*, which came under *key*, to its *queue* once more: the key stays with it."""
    carried = key_header(key, queue)
    if carried:
        message = msgspec.structs.replace(message, headers={**message.headers, **carried})
    return Publication(message=message, routing_key=queue)


def key_header(key: str, queue: str) -> dict[str, str]:
    """Return what keeps *key* with a message that is put into *queue* by its name; that name needs none."""
    return {} if key in ("", queue) else {KEY: key}


def address(publication: Publication) -> str:
    """Say where *publication* goes, for people."""
    if not publication.exchange:
        return f"queue {publication.routing_key!r}"
    return f"exchange {publication.exchange!r} with key {publication.routing_key!r}"
