r"""Snapshots as JSON that a database can hold and people can query, and back.

It is canonical JSON with the contract's names. Postgres's ``jsonb`` has no place for NUL (``\u0000``), which
a message of an error may have: it is written as the two characters ``␀0``, and ``␀`` itself twice. Both
databases hold the same.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

import msgspec

from tidewheel.journal.jsonform import canonical

_SIGN: Final = "\N{SYMBOL FOR NULL}"
_SIGN_BYTES: Final = _SIGN.encode()
_ESCAPED: Final = re.compile(f"{_SIGN}(.)", re.DOTALL)
_FROM: Final = {"0": "\0", _SIGN: _SIGN}

T = TypeVar("T", bound=msgspec.Struct)


def to_text(value: msgspec.Struct) -> str:
    """Return *value* as both databases hold it."""
    encoded = canonical(value)
    # Most have neither; a backslash before it may be one of the text itself, and then nothing is changed
    # below.
    if b"\\u0000" in encoded or _SIGN_BYTES in encoded:
        encoded = canonical(_mapped(msgspec.json.decode(encoded), _escape))
    return encoded.decode()


def from_text(text: str, kind: type[T]) -> T:
    """Return the value of *kind* that ``to_text`` gave."""
    if _SIGN not in text:
        return msgspec.json.decode(text, type=kind)
    return msgspec.convert(_mapped(msgspec.json.decode(text), _unescape), kind)


def _escape(text: str) -> str:
    return text.replace(_SIGN, _SIGN + _SIGN).replace("\0", _SIGN + "0")


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: _FROM.get(found[1], found[0]), text)


def _mapped(value: Any, change: Any) -> Any:
    """Return JSON with every text in it changed; keys are the contract's, and stay."""
    match value:
        case str():
            return change(value)
        case dict():
            return {key: _mapped(part, change) for key, part in value.items()}
        case list():
            return [_mapped(part, change) for part in value]
        case _:
            return value
