"""msgspec's validation errors, in words and with our paths.

``Expected `float`, got `str` - at `$.lines[3].price` `` becomes the path
``.lines[3].price`` and *expected a number, but the payload has text*.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tidewheel.sdk.payload.models import Mismatch

_PLACE: Final = re.compile(r" - at (`key` in )?`\$?(?P<path>[^`]*)`\Z")
_EXPECTED: Final = re.compile(r"Expected `(?P<want>[^`]+)`(?P<rest>.*?)(?:, got `?(?P<got>[^`]+)`?)?\Z")
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>.*)`\Z")
_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
    "bytes": "base64 text",
    "datetime": "a date and time",
    "date": "a date",
    "time": "a time of day",
    "duration": "a duration",
    "uuid": "a UUID",
    "decimal": "a decimal number",
}


def explain(error: msgspec.ValidationError) -> Mismatch:
    """Return *error* as a `Mismatch`."""
    text = str(error)
    path = ""
    if place := _PLACE.search(text):
        path = place["path"] + (" (a key)" if place[1] else "")
        text = text[: place.start()]
    cause = error.__cause__
    if isinstance(cause, Mismatch):
        return Mismatch(path + cause.path, cause.reason)
    return Mismatch(path, _reason(text))


def _reason(text: str) -> str:
    if missing := _MISSING.match(text):
        return f"the field {missing['name']!r} is missing, and the type has no default for it"
    if expected := _EXPECTED.match(text):
        reason = f"expected {_words(expected['want'])}{expected['rest']}"
        return f"{reason}, but the payload has {_words(expected['got'])}" if expected["got"] else reason
    if text.startswith("Invalid enum value"):
        return "expected one of the values of the enum, but the payload has another"
    return f"expected what the type says, but the payload has an {text[0].lower()}{text[1:]}"


def _words(names: str) -> str:
    return " or ".join(_WORDS.get(name, name) for name in names.split(" | "))
