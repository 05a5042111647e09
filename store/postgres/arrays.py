"""Arrays in Postgres's own binary form, packed by hand.

The driver's general way of sending a list looks at each item and its type, which costs more than all else
of an append. Here the type is known. Each class is bytes that are ready to be sent as an array of that type
by the driver; the functions give plain bytes, for who sends them past it (``prepared``).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from psycopg.adapt import AdaptersMap, Buffer, Dumper
from psycopg.pq import Format

#: One dimension, whether there are nulls, the item's type, how many items, the first one's number.
_HEADER = struct.Struct("!iiIii")
_LENGTH = struct.Struct("!i")
_BIGINT = struct.Struct("!iq")
_NULL = _LENGTH.pack(-1)
_EMPTY = struct.Struct("!iiI")
#: The length of an integer, as often as it is asked for.
_EIGHTS = repeat(8)


BYTEA, BIGINT, TEXT = 17, 20, 25
_NO_BYTEAS, _NO_BIGINTS, _NO_TEXTS = (_EMPTY.pack(0, 0, kind) for kind in (BYTEA, BIGINT, TEXT))


class ByteaArray(bytes):
    """An array of bytes or nulls."""

    @classmethod
    def of(cls, items: Sequence[bytes | None]) -> ByteaArray:
        """Pack *items*."""
        return cls(byteas(items))


class TextArray(bytes):
    """An array of texts or nulls."""

    @classmethod
    def of(cls, items: Sequence[str | None]) -> TextArray:
        """Pack *items*."""
        return cls(texts(items))


class BigintArray(bytes):
    """An array of integers or nulls."""

    @classmethod
    def of(cls, items: Sequence[int | None]) -> BigintArray:
        """Pack *items*."""
        return cls(bigints(items))


def byteas(items: Sequence[bytes | None]) -> bytes:
    """Pack an array of bytes or nulls."""
    return _packed(items, BYTEA) if items else _NO_BYTEAS


def texts(items: Sequence[str | None]) -> bytes:
    """Pack an array of texts or nulls."""
    if not items:
        return _NO_TEXTS
    if None in items:
        return _packed([None if item is None else item.encode() for item in items], TEXT)
    return _packed(list(map(str.encode, items)), TEXT)  # type: ignore[arg-type]  # there is no null


def utf8_texts(items: Sequence[bytes]) -> bytes:
    """Pack an array of texts that come as UTF-8."""
    return _packed(items, TEXT) if items else _NO_TEXTS


def bigints(items: Sequence[int | None]) -> bytes:
    """Pack an array of integers or nulls."""
    if not items:
        return _NO_BIGINTS
    header = _HEADER.pack(1, 1, BIGINT, len(items), 1)
    if None in items:
        pack = _BIGINT.pack
        return header + b"".join([_NULL if item is None else pack(8, item) for item in items])
    return header + b"".join(map(_BIGINT.pack, _EIGHTS, items))


def _packed(items: Sequence[bytes | None], kind: int) -> bytes:
    """Put the length of each before it, without a step of Python for each where there is no null."""
    count = len(items)
    parts: list[bytes] = [b""] * (2 * count)
    if None in items:
        parts[::2] = [_NULL if item is None else _LENGTH.pack(len(item)) for item in items]
        parts[1::2] = [item or b"" for item in items]
    else:
        parts[::2] = map(_LENGTH.pack, map(len, items))  # type: ignore[arg-type]  # there is no null
        parts[1::2] = items  # type: ignore[assignment]  # as above
    return _HEADER.pack(1, 1, kind, count, 1) + b"".join(parts)


class _AsItIs(Dumper):
    """Sends what was packed."""

    format = Format.BINARY

    def dump(self, obj: Any) -> Buffer | None:
        """Return the array."""
        return bytes(obj)


class _ByteaArrayDumper(_AsItIs):
    oid = 1001


class _TextArrayDumper(_AsItIs):
    oid = 1009


class _BigintArrayDumper(_AsItIs):
    oid = 1016


def teach(adapters: AdaptersMap) -> None:
    """Let a connection send the arrays of this module."""
    adapters.register_dumper(ByteaArray, _ByteaArrayDumper)
    adapters.register_dumper(TextArray, _TextArrayDumper)
    adapters.register_dumper(BigintArray, _BigintArrayDumper)
