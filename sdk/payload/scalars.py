"""Scalars and keys as JSON: the leaves of `payload.encode`.

Each function takes a value of its type, and for the dispatch table the depth it is
found at. Text must be Unicode, numbers finite and whole numbers of 64 bits, because
readers in other languages hold no others.
"""

from __future__ import annotations

import base64
import datetime as dt
import enum
import math
import uuid
from typing import Any, Final

from tidewheel.journal.events import Json
from tidewheel.sdk.payload.refusal import Refused

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**64 - 1
_MINUTE: Final = dt.timedelta(minutes=1)


def same(value: Any, _depth: int) -> Json:
    """Return what is JSON already."""
    return value


def text(value: str, _depth: int) -> Json:
    """Return text, if it is Unicode."""
    if not value.isascii():
        _check_surrogates(value)
    return value


def integer(value: int, _depth: int) -> Json:
    """Return a whole number of at most 64 bits."""
    if not INT_MIN <= value <= INT_MAX:
        raise Refused("a whole number outside -2**63..2**64-1; pass it as a string or Decimal")
    return value


def number(value: float, _depth: int) -> Json:
    """Return a finite number."""
    if not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "Infinity"
        raise Refused(f"{name} is not JSON; use None or a Decimal")
    return value


def _check_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused("text with a lone surrogate is not Unicode; pass the raw bytes instead") from None


def datetime(value: dt.datetime, _depth: int) -> Json:
    """Return RFC 3339 text; what is naive stays naive."""
    offset = value.utcoffset()
    if offset is not None and offset % _MINUTE:
        # RFC 3339 has no seconds in an offset.
        try:
            value = value.astimezone(dt.UTC)
        except OverflowError:
            raise Refused("a datetime that is out of range in UTC") from None
    return value.isoformat()


def time(value: dt.time, _depth: int) -> Json:
    """Return ISO 8601 text."""
    offset = value.utcoffset()
    if value.tzinfo is not None and (offset is None or offset % _MINUTE):
        raise Refused("a time of day in a zone has no fixed offset; pass a datetime, or a naive time")
    return value.isoformat()


def binary(value: bytes | bytearray, _depth: int) -> Json:
    """Return base64 text."""
    return base64.b64encode(value).decode("ascii")


def key_text(key: object) -> str:
    """Return the text that *key* becomes in an object."""
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, str):
        if not key.isascii():
            _check_surrogates(key)
        return str.__str__(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return str(integer(int.__int__(key), 0))
    if isinstance(key, uuid.UUID):
        return str(key)
    if isinstance(key, dt.datetime):
        return str(datetime(key, 0))
    if isinstance(key, dt.date):
        return key.isoformat()
    kinds = "text, whole numbers, UUIDs, dates or enums"
    raise Refused(f"a key of type {type(key).__name__} is not JSON; use {kinds}")
