r"""The form in which events are stored, and how old forms are read.

Events that were written together are stored together: a codec id and bytes, which are a JSON list of
objects, each with its ``type`` and its fields. JSON text is kept as it was written, so ``\u0000``, ``-0.0``,
``1e16`` and the order of keys come back as they went in.

Rule 1: what a release can write, every later release can read. A changed meaning gives the event class
another tag (``InvokeStarted.2`` after ``InvokeStarted``) and adds the upcaster from the tag before it; a new
field with a default needs neither.
Rule 2: what a release cannot read it refuses by name, and never guesses.

Turning Python values into JSON values is not done here: payloads already are. The JSON a person sees
(``run journal --json``) is in ``jsonform``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from tidewheel.journal.errors import TidewheelError
from tidewheel.journal.events import EVENT_TYPES, Event

Fields: TypeAlias = dict[str, Any]


class Upcaster(NamedTuple):
    """How the fields of an older form become those of the form that *tag* stands for.

    Fields it cannot read it refuses with ``ValueError``.
    """

    tag: str
    convert: Callable[[Fields], Fields]


#: The class of each tag that is written today.
TAGS: Final[dict[str, type[Event]]] = {str(cls.__struct_config__.tag): cls for cls in EVENT_TYPES.values()}
#: The tags that were written by earlier releases.
UPCASTERS: Final[dict[str, Upcaster]] = {}


class UnknownEvent(TidewheelError):
    """A newer release wrote the event. Upgrade the workers; until then the run can wait."""

    def __init__(self, *, tag: str, place: int) -> None:
        name = tag.partition(".")[0]
        known = [one for one in TAGS if one.partition(".")[0] == name]
        newest = f" (newest known: {known[0]!r})" if known else ""
        super().__init__(f"this release does not know event {tag!r}{newest}: upgrade the workers")
        self.tag, self.place = tag, place


class UnknownCodec(TidewheelError):
    """The bytes were wrapped by a codec this process was not given. Configure it and retry."""

    def __init__(self, codec: str) -> None:
        super().__init__(f"events were written with codec {codec!r}, which is not configured here")
        self.codec, self.place = codec, 0


class CorruptEvent(TidewheelError):
    """The stored bytes are not such events. Retrying cannot help: park the run.

    ``place`` is that of the event among those that were stored with it; ``tag`` is None where it has none.
    """

    def __init__(self, *, place: int, tag: str | None, field: str | None, reason: str) -> None:
        event = f"event {tag!r}" if tag is not None else "the stored events"
        where = event if field is None else f"field {field!r} of {event}"
        super().__init__(f"{where} cannot be read: {reason}")
        self.place, self.tag, self.field, self.reason = place, tag, field, reason


class Codec(Protocol):
    """What may be put around the JSON bytes: compression, encryption.

    The id is stored with the bytes and must stay readable for as long as the journals live. Bytes that
    ``decode`` did not make are refused with ``ValueError``.
    """

    @property
    def id(self) -> str:
        """The name stored with what it wrapped."""

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
#: All in one go, which is what nearly every read needs.
_read: Final[Callable[[bytes], list[Event]]] = msgspec.json.Decoder(list[Event]).decode
_read_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_READERS: Final[dict[str, Callable[[bytes | msgspec.Raw], Event]]] = {
    tag: msgspec.json.Decoder(cls).decode for tag, cls in TAGS.items()
}


class _Tagged(msgspec.Struct):
    type: str


_read_tag = msgspec.json.Decoder(_Tagged).decode
#: What decoding hostile bytes raises; bad UTF-8 is a plain ``ValueError``.
_NOT_READABLE = (msgspec.MsgspecError, ValueError, RecursionError)


def encode(events: Sequence[Event], codec: Codec = PLAIN) -> bytes:
    """Return *events* as they are stored together, in the newest form of their classes."""
    data = _write(events)
    return data if codec is PLAIN else codec.encode(data)


def decode(data: bytes, codec: str = PLAIN.id, codecs: Mapping[str, Codec] = CODECS) -> list[Event]:
    """Return the events that were stored in *data*, brought up to today's form of their classes.

    Raises UnknownEvent where a newer release wrote one, UnknownCodec where *codecs* lacks their codec,
    CorruptEvent where the bytes are not such events.
    """
    if codec != "json":
        data = _unwrapped(codec, data, codecs)
    try:
        return _read(data)
    except _NOT_READABLE:
        return _read_one_by_one(data)


def _unwrapped(codec_id: str, data: bytes, codecs: Mapping[str, Codec]) -> bytes:
    """Return the JSON bytes that a codec wrapped."""
    codec = codecs.get(codec_id)
    if codec is None:
        raise UnknownCodec(codec_id)
    try:
        return codec.decode(data)
    except ValueError as error:
        raise CorruptEvent(place=0, tag=None, field=None, reason=str(error)) from error


def _read_one_by_one(data: bytes) -> list[Event]:
    """Read what was not written in today's form, or find out which of the events cannot be read."""
    try:
        raws = _read_list(data)
    except _NOT_READABLE as error:
        raise CorruptEvent(place=0, tag=None, field=None, reason=_said(error)) from error
    return [_read_event(place, raw) for place, raw in enumerate(raws)]


def _read_event(place: int, raw: msgspec.Raw) -> Event:
    tag: str | None = None
    try:
        tag = _read_tag(raw).type
        if tag in UPCASTERS:
            return _upcast(tag, msgspec.json.decode(raw, type=Fields))
        if tag in _READERS:
            return _READERS[tag](raw)
    except _NOT_READABLE as error:
        raise CorruptEvent(place=place, tag=tag, field=_field_of(str(error)), reason=_said(error)) from error
    raise UnknownEvent(tag=tag, place=place)


def _upcast(tag: str, fields: Fields) -> Event:
    """Return the event whose *fields* have the form of *tag*, taken form by form to the newest."""
    fields.pop("type")
    while tag in UPCASTERS:
        tag, convert = UPCASTERS[tag]
        fields = convert(fields)
    return msgspec.convert(fields, TAGS[tag])


def _said(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _field_of(message: str) -> str | None:
    """Return the event's field that msgspec's *message* is about, if it is about one."""
    at = re.search(r"at `\$\.(\w+)", message) or re.search(r"required field `(\w+)`\Z", message)
    return at.group(1) if at else None
