"""Pydantic models as payloads, without importing pydantic.

It is an optional dependency of users, so a model is known by its methods. Both
directions use pydantic's JSON mode, the one in which strict models read back what
they wrote. Field names are written and both names and aliases are read, so that a
model whose two aliases differ still round-trips.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Final

import msgspec

from tidewheel.sdk.payload.refusal import Refused, key_step
from tidewheel.sdk.payload.scalars import number

#: What pydantic shows in place of a secret.
_MASK: Final = "**********"


class Mismatch(ValueError):
    """JSON that does not fit a type: the path within it, and why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = reason


def is_model(cls: object) -> bool:
    """Tell whether *cls* is a pydantic (version 2) model class."""
    return isinstance(cls, type) and hasattr(cls, "__pydantic_validator__") and hasattr(cls, "model_dump")


def dump(model: Any) -> Any:
    """Return *model* as pydantic writes it, refusing what would not read back."""
    cls: Any = type(model)
    named = _reads_names(cls)
    try:
        data = model.model_dump(mode="json", by_alias=not named, round_trip=True, warnings="error")
    except UnicodeDecodeError:
        reason = 'bytes that are not UTF-8; set ser_json_bytes and val_json_bytes to "base64" in the model'
        raise Refused(reason) from None
    except ValueError as error:
        line = " ".join(part.strip() for part in str(error).splitlines()[:2])
        raise Refused(f"pydantic cannot write it: {line.partition(' [')[0]}") from None
    shown = str(data)
    if _MASK in shown or "None" in shown:
        _refuse_hidden(model)
    return data


def load(cls: Any, data: Any) -> Any:
    """Return *data* as a *cls*, or raise `Mismatch` for the first thing that does not fit."""
    options = {"by_alias": True, "by_name": True} if _reads_names(cls) else {}
    try:
        return cls.model_validate_json(msgspec.json.encode(data), **options)
    except ValueError as error:
        errors = getattr(error, "errors", None)
        if errors is None:
            raise Mismatch("", str(error)) from error
        found = errors(include_url=False, include_input=False, include_context=False)[0]
        raise Mismatch("".join(key_step(step) for step in found["loc"]), found["msg"]) from error


@functools.lru_cache(maxsize=1024)
def _reads_names(cls: Any) -> bool:
    return "by_name" in inspect.signature(cls.model_validate_json).parameters  # pydantic 2.11 and later


def _refuse_hidden(value: object) -> None:
    """Refuse what pydantic silently writes as something else: a secret as its mask, NaN as null."""
    if isinstance(value, float):
        number(value, 0)
    if hasattr(value, "get_secret_value"):
        raise Refused("a secret is not journaled; pass a reference to it and resolve it in the task")
    items: list[tuple[object, object]]
    if is_model(type(value)):
        items = list(vars(value).items())
    elif isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, (list, tuple)):
        items = list(enumerate(value))
    else:
        return
    for key, item in items:
        try:
            _refuse_hidden(item)
        except Refused as refused:
            refused.within(value, key_step(key))
            raise
