"""From Python values to JSON values, deterministically and without loss.

One function per type is found once and kept; the common builtins are looked up by
exact type. What is returned shares no container with what was given, so nobody can
change a journaled value afterwards. A value that JSON cannot hold exactly is
refused here, at the call, where the stack trace still shows who passed it.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import uuid
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.events import Json
from tidewheel.sdk.payload import models
from tidewheel.sdk.payload.refusal import DEPTH_MAX, Refused, key_step, not_data, too_deep
from tidewheel.sdk.payload.scalars import binary, datetime, integer, key_text, number, same, text, time

Encoder: TypeAlias = Callable[[Any, int], Json]

#: Types remembered; more than this many means classes made at run time, which are looked up anew.
_TYPES_MAX: Final = 4096


def encode(value: object, *, where: str = "value") -> Json:
    """Return *value* as plain JSON in fresh containers, or refuse it naming the path from *where*."""
    try:
        return ENCODERS.get(type(value), first_seen)(value, 0)
    except Refused as refused:
        raise InvalidRequest(refused.message(where)) from None


def canonical(data: Json) -> bytes:
    """Return the same bytes for the same JSON value, whatever the order of its keys."""
    return msgspec.json.encode(data, order="sorted")


def encode_at(value: object, depth: int) -> Json:
    """Encode *value* inside *depth* containers; raises `Refused`."""
    return ENCODERS.get(type(value), first_seen)(value, depth)


def first_seen(value: Any, depth: int) -> Json:
    """Encode *value*, the first of its type, and remember how."""
    cls = type(value)
    encoder = _encoder_for(cls)
    if len(ENCODERS) < _TYPES_MAX:
        ENCODERS[cls] = encoder
    return encoder(value, depth)


def _encoder_for(cls: type) -> Encoder:
    if issubclass(cls, BaseException):
        return _refuse
    if issubclass(cls, enum.Enum):
        return _enum
    if models.is_model(cls):
        return _model
    if issubclass(cls, msgspec.Struct):
        return _struct_encoder(cls)
    if dataclasses.is_dataclass(cls):
        return functools.partial(_record, [(f.name, f.name) for f in dataclasses.fields(cls)])
    for base, encoder in _BASES.items():
        if issubclass(cls, base):
            return encoder
    return _refuse


def _refuse(value: Any, _depth: int) -> Json:
    raise not_data(value)


def _enum(value: enum.Enum, depth: int) -> Json:
    # The value may be an instance of a str or int subclass, but never of this enum again.
    return encode_at(value.value, depth)


# Containers: each adds its step to a refusal that passes through it.


def _dict(value: dict[Any, Any], depth: int) -> Json:
    if depth >= DEPTH_MAX:
        raise too_deep()
    out: dict[str, Json] = {}
    key: object = None
    try:
        for key, item in value.items():
            name = key if type(key) is str and key.isascii() else key_text(key)
            out[name] = ENCODERS.get(type(item), first_seen)(item, depth + 1)
    except Refused as refused:
        refused.within(value, key_step(key))
        raise
    if len(out) != len(value):
        raise _collision(value)
    return out


def _list(value: Any, depth: int) -> Json:
    if depth >= DEPTH_MAX:
        raise too_deep()
    out: list[Json] = []
    try:
        for item in value:
            out.append(ENCODERS.get(type(item), first_seen)(item, depth + 1))  # noqa: PERF401 - len(out) is the path
    except Refused as refused:
        refused.within(value, f"[{len(out)}]")
        raise
    return out


def _set(value: Any, depth: int) -> Json:
    if depth >= DEPTH_MAX:
        raise too_deep()
    found: dict[bytes, Json] = {}
    try:
        for item in value:
            data = encode_at(item, depth + 1)
            if found.setdefault(canonical(data), data) is not data:
                raise Refused("two elements become the same JSON; pass a list")
    except Refused as refused:
        refused.within(value, "[*]")
        raise
    return [found[order] for order in sorted(found)]


def _record(names: list[tuple[str, str]], value: Any, depth: int) -> Json:
    """Encode an object by its attributes; *names* pairs each with its name in JSON."""
    if depth >= DEPTH_MAX:
        raise too_deep()
    out: dict[str, Json] = {}
    attribute = ""
    try:
        for attribute, name in names:
            item = getattr(value, attribute, _NO_VALUE)
            if item is not msgspec.UNSET:
                out[name] = ENCODERS.get(type(item), first_seen)(item, depth + 1)
    except Refused as refused:
        refused.within(value, f".{attribute}")
        raise
    return out


def _struct_encoder(cls: Any) -> Encoder:
    config = cls.__struct_config__
    names = list(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))

    def struct(value: Any, depth: int) -> Json:
        data = _record(names, value, depth)
        if config.array_like:
            items = [data.get(name) for _, name in names]
            return items if config.tag is None else [config.tag, *items]
        return data if config.tag is None else {config.tag_field: config.tag, **data}

    return struct


def _model(value: Any, depth: int) -> Json:
    try:
        data = models.dump(value)
    except RecursionError:
        raise Refused("refers back to itself, or is nested too deep for pydantic") from None
    return encode_at(data, depth)


def _collision(value: dict[Any, Any]) -> Refused:
    seen: set[str] = set()
    twice = ""
    for key in value:
        name = key_text(key)
        twice = name if name in seen else twice
        seen.add(name)
    return Refused(f"two keys both become {key_step(twice)} in JSON; make them differ as text")


class _NoValue:
    """A declared attribute that was never set."""


_NO_VALUE: Final = _NoValue()


def _no_value(_value: object, _depth: int) -> Json:
    raise Refused("has no value yet; set it before the object is passed")


#: For subclasses: the first base that fits. Their own ``__str__`` and ``__int__`` are not asked.
_BASES: Final[dict[type, Encoder]] = {
    str: lambda value, depth: text(str.__str__(value), depth),
    int: lambda value, depth: integer(int.__int__(value), depth),
    float: lambda value, depth: number(float.__float__(value), depth),
    dict: _dict,
    list: _list,
    tuple: _list,
    set: _set,
    frozenset: _set,
    dt.datetime: datetime,
    dt.date: lambda value, _depth: value.isoformat(),
    dt.time: time,
    dt.timedelta: lambda value, _depth: msgspec.to_builtins(value),
    uuid.UUID: lambda value, _depth: str(value),
    decimal.Decimal: lambda value, _depth: str(value),
    bytes: binary,
    bytearray: binary,
}
#: What encodes a value of each type that was seen; for another it is `first_seen`.
ENCODERS: Final[dict[type, Encoder]] = {
    **_BASES,
    type(None): same,
    bool: same,
    str: text,
    int: integer,
    float: number,
    _NoValue: _no_value,
}
