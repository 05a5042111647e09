"""From the frames of a delivery to a message: the method, the header, and as many pieces as the body has."""

from __future__ import annotations

from typing import NamedTuple

from tidewheel.broker.message import KEY, Message
from tidewheel.broker.rabbitmq.frames import HEADER, Properties, read_delivery, read_header
from tidewheel.broker.rabbitmq.headers import read_headers


class Incoming(NamedTuple):
    """A message as it was delivered, the key it was published under, and how often it came before."""

    tag: int
    message: Message
    routing_key: str
    earlier_deliveries: int


class Assembly:
    """Puts together the deliveries of one channel, which come one after the other."""

    def __init__(self) -> None:
        self._tag = 0
        self._redelivered = False
        self._key = ""
        self._properties: Properties | None = None
        self._body = b""

    def begin(self, payload: bytes) -> None:
        """Take the method that announces a delivery."""
        self._tag, self._redelivered, self._key = read_delivery(payload)
        self._properties = None

    def add(self, kind: int, payload: bytes) -> Incoming | None:
        """Take a header or a piece of a body; return the delivery once it is whole."""
        if kind == HEADER:
            self._properties = read_header(payload)
            self._body = b""
        else:
            self._body += payload
        properties = self._properties
        if properties is None or len(self._body) < properties.body_size:
            return None
        self._properties = None
        headers, earlier = read_headers(properties.headers, redelivered=self._redelivered)
        message = Message(
            body=self._body,
            message_id=properties.message_id,
            headers=headers,
            expires_s=int(properties.expiration) / 1000 if properties.expiration else None,
            content_type=properties.content_type,
        )
        return Incoming(self._tag, message, headers.get(KEY, self._key), earlier)
