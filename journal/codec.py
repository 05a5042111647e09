r"""The form in which events are stored, and how old forms are read.

An event is stored as its class name, the version of that class's fields, a
codec id and bytes: the fields as JSON. JSON text is kept as it was written, so
``\u0000``, ``-0.0``, ``1e16`` and the order of keys come back as they went in.

Rule 1: what a release can write, every later release can read. A changed
meaning raises the class's number in ``VERSIONS`` and adds the upcaster from the
number before it; a new field with a default needs neither.
Rule 2: what a release cannot read it refuses by name, and never guesses.

Turning Python values into JSON values is not done here: payloads already are.
The JSON a person sees (``run journal --json``) is in ``jsonform``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from tidewheel.journal.errors import TidewheelError
from tidewheel.journal.events import EVENT_TYPES, Event

Fields: TypeAlias = dict[str, Any]
Upcaster: TypeAlias = Callable[[Fields], Fields]

#: The version in which each event class is written today, by class name.
VERSIONS: Final[dict[str, int]] = dict.fromkeys(EVENT_TYPES, 1)

#: ``(type, version)`` to the function that turns those fields into the next version's;
#: fields it cannot read it refuses with ``ValueError``.
UPCASTERS: Final[dict[tuple[str, int], Upcaster]] = {}


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """One event as a store keeps it; ``codec`` says how ``data`` was wrapped."""

    type: str
    version: int
    codec: str
    data: bytes


class UnknownEvent(TidewheelError):
    """A newer release wrote the event. Upgrade the workers; until then the run can wait."""

    def __init__(self, *, type: str, version: int, known: int | None) -> None:
        what = f"event {type!r}" if known is None else f"version {version} of event {type!r}"
        newest = "" if known is None else f" (newest known: {known})"
        super().__init__(f"this release does not know {what}{newest}: upgrade the workers")
        self.type, self.version, self.known = type, version, known


class UnknownCodec(TidewheelError):
    """The bytes were wrapped by a codec this process was not given. Configure it and retry."""

    def __init__(self, *, type: str, codec: str) -> None:
        super().__init__(f"event {type!r} was written with codec {codec!r}, which is not configured here")
        self.type, self.codec = type, codec


class CorruptEvent(TidewheelError):
    """The stored bytes are not such an event. Retrying cannot help: park the run."""

    def __init__(self, *, type: str, field: str | None, reason: str) -> None:
        where = f"event {type!r}" if field is None else f"field {field!r} of event {type!r}"
        super().__init__(f"{where} cannot be read: {reason}")
        self.type, self.field, self.reason = type, field, reason


class Codec(Protocol):
    """What may be put around the JSON bytes: compression, encryption.

    The id is stored with every event and must stay readable for as long as the
    journals live. Bytes that ``decode`` did not make are refused with ``ValueError``.
    """

    @property
    def id(self) -> str:
        """The name stored with each event."""

    def encode(self, data: bytes, /) -> bytes:
        """Wrap the JSON bytes."""

    def decode(self, data: bytes, /) -> bytes:
        """Return exactly the bytes that were wrapped."""


class PlainJson:
    """The JSON bytes as they are."""

    id: Final = "json"

    def encode(self, data: bytes, /) -> bytes:
        """Return *data*."""
        return data

    def decode(self, data: bytes, /) -> bytes:
        """Return *data*."""
        return data


PLAIN: Final = PlainJson()
CODECS: Final[Mapping[str, Codec]] = {PLAIN.id: PLAIN}

_write = msgspec.json.Encoder().encode
_READERS: Final[dict[str, Callable[[bytes], Event]]] = {
    name: msgspec.json.Decoder(cls).decode for name, cls in EVENT_TYPES.items()
}


def encode(event: Event, codec: Codec = PLAIN) -> StoredEvent:
    """Return *event* as it is stored, in the newest version of its class."""
    name = type(event).__name__
    data = _write(event)
    if codec is PLAIN:  # the common case, without a call that does nothing
        return StoredEvent(name, VERSIONS[name], "json", data)
    return StoredEvent(name, VERSIONS[name], codec.id, codec.encode(data))


def decode(stored: StoredEvent, codecs: Mapping[str, Codec] = CODECS) -> Event:
    """Return the event that was stored, brought up to today's version of its class.

    Raises UnknownEvent where a newer release wrote it, UnknownCodec where *codecs*
    lacks its codec, CorruptEvent where the bytes are not such an event.
    """
    return read(stored.type, stored.version, stored.codec, stored.data, codecs)


def read(name: str, version: int, codec: str, data: bytes, codecs: Mapping[str, Codec] = CODECS) -> Event:
    """Do as ``decode`` does, given the parts of a stored event: a store has thousands of them as rows."""
    newest = VERSIONS.get(name)
    if newest is None or version > newest:
        raise UnknownEvent(type=name, version=version, known=newest)
    try:
        if codec != "json":
            data = _unwrapped(name, codec, data, codecs)
        if version == newest:
            return _READERS[name](data)
        return msgspec.convert(_upcast(name, version, data), EVENT_TYPES[name])
    except RecursionError as error:
        raise CorruptEvent(type=name, field=None, reason="nested too deeply") from error
    except (msgspec.MsgspecError, ValueError) as error:  # bad UTF-8 is a plain ValueError
        raise CorruptEvent(type=name, field=_field_of(str(error)), reason=str(error)) from error


def _unwrapped(name: str, codec_id: str, data: bytes, codecs: Mapping[str, Codec]) -> bytes:
    """Return the JSON bytes that the event's codec wrapped."""
    codec = codecs.get(codec_id)
    if codec is None:
        raise UnknownCodec(type=name, codec=codec_id)
    return codec.decode(data)


def _upcast(name: str, stored_version: int, data: bytes) -> Fields:
    """Return the fields in *data*, taken version by version to the newest."""
    if stored_version < 1:
        raise ValueError(f"there is no version {stored_version}")
    fields = msgspec.json.decode(data, type=Fields)
    for version in range(stored_version, VERSIONS[name]):
        fields = UPCASTERS[name, version](fields)
    return fields


def _field_of(message: str) -> str | None:
    """Return the event's field that msgspec's *message* is about, if it is about one."""
    at = re.search(r"at `\$\.(\w+)", message) or re.search(r"required field `(\w+)`\Z", message)
    return at.group(1) if at else None
