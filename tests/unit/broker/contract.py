"""Holds messages against the schemas that ship with the package.

What we write is held against a *sealed* schema, which has no room for fields that the schema does not name:
consumers have to bear what a later release adds, but we may not add anything without writing it down.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from tidewheel.broker.schemas import schema_of

FORMATS = FormatChecker(formats=())


@FORMATS.checks("date-time", raises=ValueError)
def is_moment(value: object) -> bool:
    """Tell whether *value*, if it is text, is a moment as RFC 3339 writes it: with a time and an offset."""
    if not isinstance(value, str):
        return True
    return "T" in value and dt.datetime.fromisoformat(value).tzinfo is not None


@FORMATS.checks("uuid", raises=ValueError)
def is_uuid(value: object) -> bool:
    """Tell whether *value*, if it is text, is a UUID in its usual form."""
    return not isinstance(value, str) or str(uuid.UUID(value)) == value


def sealed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return *schema* with no room for fields that it does not name; payloads of users stay open."""
    closed = {name: {**each, "additionalProperties": False} for name, each in schema.get("$defs", {}).items()}
    return {**schema, "additionalProperties": False, "$defs": closed}


@cache
def validator(body: str, *, is_sealed: bool) -> Draft202012Validator:
    """Return what tells the breaches of the schema of *body*."""
    schema = schema_of(body)
    return Draft202012Validator(sealed(schema) if is_sealed else schema, format_checker=FORMATS)


def breaches(body: str, written: bytes, *, is_sealed: bool = False) -> list[str]:
    """Return where and how *written* departs from the schema of *body*."""
    found = validator(body, is_sealed=is_sealed).iter_errors(json.loads(written))
    return [f"{error.json_path}: {error.message}" for error in found]
