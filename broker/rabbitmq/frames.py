"""The AMQP 0-9-1 frames of messages and their settlement, as bytes.

Only what passes by the thousand is here: publishing, delivering, acknowledging. Everything else is
aiormq's. Pure: bytes in, values out. Offsets and types are those of the specification.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from pamqp import decode

from tidewheel.broker.message import BYTES, Message, Publication
from tidewheel.journal.errors import InvalidRequest

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
#: The frame that only says that somebody is there.
HEARTBEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

#: Class and method, as they stand at the beginning of a method's payload.
CONNECTION_CLOSE: Final = b"\x00\x0a\x00\x32"
CONNECTION_BLOCKED: Final = b"\x00\x0a\x00\x3c"
CONNECTION_UNBLOCKED: Final = b"\x00\x0a\x00\x3d"
CHANNEL_CLOSE: Final = b"\x00\x14\x00\x28"
BASIC_CANCEL: Final = b"\x00\x3c\x00\x1e"
BASIC_RETURN: Final = b"\x00\x3c\x00\x32"
BASIC_DELIVER: Final = b"\x00\x3c\x00\x3c"
BASIC_ACK: Final = b"\x00\x3c\x00\x50"
BASIC_NACK: Final = b"\x00\x3c\x00\x78"

FRAME: Final = struct.Struct(">BHI")
#: What a frame has beside its payload: its head, and the byte that ends it.
FRAME_EXTRA: Final = FRAME.size + 1

#: Larger bodies are refused: RabbitMQ 4 takes no more than this, and closes the channel instead of saying so.
BODY_MAX: Final = 16 * 1024 * 1024
#: How many addresses are remembered in their encoded form.
ADDRESSES_MAX: Final = 4096

_END: Final = b"\xce"
_ACK: Final = struct.Struct(">BHIHHQBB")
_TAG: Final = struct.Struct(">QB")
_CONTENT: Final = struct.Struct(">HHQH")
_SHORT: Final = struct.Struct(">H")
_LONG: Final = struct.Struct(">I")
_BASIC: Final = 60
_MANDATORY: Final = 1
_SHORTSTR_MAX: Final = 255
#: The name and the type of the header that has further routing keys.
_FURTHER_KEYS: Final = b"\x03BCCA"
_FLEETING: Final = b"\x01"
_PERSISTENT: Final = b"\x02"
# Which properties a content header has, by bit, in the order in which they follow.
_HAS_CONTENT_TYPE: Final = 1 << 15
_HAS_HEADERS: Final = 1 << 13
_HAS_DELIVERY_MODE: Final = 1 << 12
_HAS_EXPIRATION: Final = 1 << 8
_HAS_MESSAGE_ID: Final = 1 << 7
_SHORTSTR, _TABLE, _OCTET = "shortstr", "table", "octet"
_PROPERTIES: Final = (
    (1 << 15, "content_type", _SHORTSTR),
    (1 << 14, "content_encoding", _SHORTSTR),
    (1 << 13, "headers", _TABLE),
    (1 << 12, "delivery_mode", _OCTET),
    (1 << 11, "priority", _OCTET),
    (1 << 10, "correlation_id", _SHORTSTR),
    (1 << 9, "reply_to", _SHORTSTR),
    (1 << 8, "expiration", _SHORTSTR),
    (1 << 7, "message_id", _SHORTSTR),
)
_NUMBERS: Final = {0x49: struct.Struct(">i"), 0x6C: struct.Struct(">q")}


class Properties(NamedTuple):
    """What we read of a content header."""

    body_size: int
    content_type: str
    headers: dict[str, Any]
    expiration: str | None
    message_id: str


class Returned(NamedTuple):
    """A message that no queue took, by its address."""

    exchange: str
    routing_key: str


class Closing(NamedTuple):
    """Why the broker closes a channel, or the connection."""

    code: int
    text: str


# Writing


def settlement(channel: int, *, method: bytes, tag: int, bits: int) -> bytes:
    """Return the frame that settles *tag* by an ack, a nack or a reject, which all look alike."""
    return _ACK.pack(1, channel, 13, _BASIC, method[3], tag, bits, 0xCE)


def acknowledgement(channel: int, tag: int, *, multiple: bool) -> bytes:
    """Return the frame that acknowledges *tag*, and with *multiple* all before it."""
    return settlement(channel, method=BASIC_ACK, tag=tag, bits=int(multiple))


def rejection(channel: int, tag: int, *, requeue: bool) -> bytes:
    """Return the frame that gives *tag* back, or lets the broker make a dead letter of it."""
    return settlement(channel, method=b"\x00\x3c\x00\x5a", tag=tag, bits=int(requeue))


class PublicationWriter:
    """Writes publications for one channel: mandatory, and persistent unless they need not last."""

    def __init__(self, channel: int, frame_max: int) -> None:
        self._channel = channel
        self._payload_max = frame_max - FRAME_EXTRA
        self._addresses: dict[tuple[str, str], bytes] = {}

    def frames(self, publication: Publication) -> bytes:
        """Return *publication* as bytes, or raise ``InvalidRequest`` for what no broker takes."""
        key = (publication.exchange, publication.routing_key)
        address = self._addresses.get(key)
        if address is None:
            if len(self._addresses) >= ADDRESSES_MAX:
                self._addresses.clear()
            address = self._addresses[key] = self._address(publication)
        body = publication.message.body
        header = self._header(publication.message, lasting=publication.lasting, also=publication.also)
        if len(header) > self._payload_max:
            raise InvalidRequest(
                f"the headers of message {publication.message.message_id!r} take {len(header)} bytes, "
                f"and RabbitMQ takes {self._payload_max}"
            )
        if len(body) > BODY_MAX:
            raise InvalidRequest(
                f"message {publication.message.message_id!r} has {len(body)} bytes, "
                f"and RabbitMQ takes {BODY_MAX}"
            )
        parts = [address, FRAME.pack(HEADER, self._channel, len(header)), header, _END]
        for start in range(0, len(body), self._payload_max):
            piece = body[start : start + self._payload_max]
            parts += (FRAME.pack(BODY, self._channel, len(piece)), piece, _END)
        return b"".join(parts)

    def _address(self, publication: Publication) -> bytes:
        payload = b"".join(
            (
                b"\x00\x3c\x00\x28\x00\x00",
                shortstr(publication.exchange, "the name of the exchange"),
                shortstr(publication.routing_key, "the routing key"),
                bytes((_MANDATORY,)),
            )
        )
        return FRAME.pack(METHOD, self._channel, len(payload)) + payload + _END

    @staticmethod
    def _header(message: Message, *, lasting: bool, also: tuple[str, ...]) -> bytes:
        flags = _HAS_CONTENT_TYPE | _HAS_DELIVERY_MODE
        parts = [b"", shortstr(message.content_type, "the content type")]
        if message.headers or also:
            flags |= _HAS_HEADERS
            parts.append(_table(message.headers, also))
        parts.append(_PERSISTENT if lasting else _FLEETING)
        if message.expires_s is not None:
            flags |= _HAS_EXPIRATION
            parts.append(shortstr(str(max(0, round(message.expires_s * 1000))), "the expiry"))
        if message.message_id:
            flags |= _HAS_MESSAGE_ID
            parts.append(shortstr(message.message_id, "the message's id"))
        parts[0] = _CONTENT.pack(_BASIC, 0, len(message.body), flags)
        return b"".join(parts)


def shortstr(text: str, what: str) -> bytes:
    """Return *text* with its length before it, or raise ``InvalidRequest`` that names *what* is too long."""
    encoded = text.encode()
    if len(encoded) > _SHORTSTR_MAX:
        raise InvalidRequest(f"{what} has {len(encoded)} bytes, AMQP takes {_SHORTSTR_MAX}: {text[:40]!r}...")
    return bytes((len(encoded),)) + encoded


def _table(headers: dict[str, str], also: tuple[str, ...]) -> bytes:
    """Return a table of *headers*; *also* is the list by which RabbitMQ routes, and which it takes out."""
    parts = [b""]
    if also:
        keys = b"".join(b"S" + _LONG.pack(len(key)) + key for key in map(str.encode, also))
        parts += (_FURTHER_KEYS, _LONG.pack(len(keys)), keys)
    for name, value in headers.items():
        encoded = value.encode()
        parts += (shortstr(name, "the name of a header"), b"S", _LONG.pack(len(encoded)), encoded)
    parts[0] = _LONG.pack(sum(map(len, parts)))
    return b"".join(parts)


# Reading


def read_delivery(payload: bytes) -> tuple[int, bool, str]:
    """Return the tag of a delivery, whether the broker says it is not the first, and its routing key."""
    at = 5 + payload[4]
    tag, bits = _TAG.unpack_from(payload, at)
    at += _TAG.size
    key, _ = _read_shortstr(payload, at + 1 + payload[at])
    return tag, bool(bits & 1), key


def read_confirm(payload: bytes) -> tuple[int, bool]:
    """Return the tag of an ack or nack, and whether it speaks of all before it too."""
    tag, bits = _TAG.unpack_from(payload, 4)
    return tag, bool(bits & 1)


def read_return(payload: bytes) -> Returned:
    """Return the address that no queue takes."""
    _text, at = _read_shortstr(payload, 6)
    exchange, at = _read_shortstr(payload, at)
    key, _ = _read_shortstr(payload, at)
    return Returned(exchange, key)


def read_closing(payload: bytes) -> Closing:
    """Return why the broker closes a channel or the connection."""
    (code,) = _SHORT.unpack_from(payload, 4)
    return Closing(code, _read_shortstr(payload, 6)[0])


def read_blocked(payload: bytes) -> str:
    """Return why the broker takes no publications."""
    return _read_shortstr(payload, 4)[0]


def read_header(payload: bytes) -> Properties:
    """Return what a content header says."""
    _class, _weight, body_size, flags = _CONTENT.unpack_from(payload)
    at = _CONTENT.size
    found: dict[str, str] = {}
    headers: dict[str, Any] = {}
    for bit, name, kind in _PROPERTIES:
        if not flags & bit:
            continue
        if kind is _SHORTSTR:
            found[name], at = _read_shortstr(payload, at)
        elif kind is _TABLE:
            headers, at = _read_table(payload, at)
        else:
            at += 1
    return Properties(
        body_size,
        found.get("content_type", BYTES),
        headers,
        found.get("expiration"),
        found.get("message_id", ""),
    )


def _read_shortstr(payload: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + payload[at]
    return payload[at + 1 : end].decode("utf-8", "replace"), end


def _read_table(payload: bytes, at: int) -> tuple[dict[str, Any], int]:
    """Read a table. Strings and numbers are quick; a table with anything else is read by pamqp."""
    (size,) = _LONG.unpack_from(payload, at)
    begin, at = at, at + 4
    end = at + size
    table: dict[str, Any] = {}
    while at < end:
        name, at = _read_shortstr(payload, at)
        kind = payload[at]
        number = _NUMBERS.get(kind)
        if number is not None:
            (table[name],) = number.unpack_from(payload, at + 1)
            at += 1 + number.size
        elif kind == 0x53:  # noqa: PLR2004 - "S", a long string
            (length,) = _LONG.unpack_from(payload, at + 1)
            at += 5 + length
            table[name] = payload[at - length : at].decode("utf-8", "replace")
        else:
            return decode.field_table(payload[begin:end])[1], end
    return table, end
