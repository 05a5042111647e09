"""From JSON values back to the types the code declares.

msgspec does the work. What it does not know gets a *stand-in* class in the hint:
unions whose members look alike in JSON, enums of mixed values, and classes that
contain such. A result shares no container with the journal's own value. Fields
that the type does not have are ignored and missing ones with a default are filled,
so that types may grow while runs sleep.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import operator
import types
import typing
from collections.abc import Callable
from typing import Any, Final

import msgspec

from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.events import Json
from tidewheel.sdk.payload import models
from tidewheel.sdk.payload.encoding import canonical, encode
from tidewheel.sdk.payload.models import Mismatch
from tidewheel.sdk.payload.refusal import PayloadError
from tidewheel.sdk.payload.words import explain

_UNTYPED: Final = (Any, object, typing.NoReturn, typing.Never)
#: A value of these that is what the hint says needs no copy, and no call of `decode`.
IMMUTABLE: Final = frozenset({str, int, bool})
_PLAIN: Final = (str, int, float, dict, list, tuple, set, frozenset)


def decode(data: Json, hint: Any, *, where: str) -> object:
    """Return *data* as the type *hint* says, or raise `PayloadError` with the path from *where*."""
    if type(data) is hint and hint in IMMUTABLE:
        return data
    try:
        return _load(data, hint)
    except Mismatch as mismatch:
        raise PayloadError(f"{where}{mismatch.path}: {mismatch.reason}") from mismatch.__cause__


def _load(data: Json, hint: Any) -> object:
    try:
        decoder = _decoder(hint)
    except TypeError:  # an unhashable hint, such as Annotated[int, []]
        decoder = _decoder.__wrapped__(hint)
    try:
        return decoder.decode(msgspec.json.encode(data))
    except msgspec.ValidationError as error:
        raise explain(error) from error
    except RecursionError:
        raise Mismatch("", "nested too deep to be read") from None


@functools.lru_cache(maxsize=2048)
def _decoder(hint: Any) -> msgspec.json.Decoder[Any]:
    if hint in _UNTYPED:
        return msgspec.json.Decoder()
    return msgspec.json.Decoder(_fitted(hint), dec_hook=_custom)


def _custom(cls: Any, data: Any) -> Any:
    """Build what msgspec leaves to us; a `ValueError` from here gets msgspec's path."""
    if isinstance(cls, _StandIn):
        return cls.build(data)
    if models.is_model(cls):
        return models.load(cls, data)
    if not isinstance(cls, type):
        return data  # a hint such as Iterable[int] that says nothing about how to build one
    for base in _PLAIN:
        if issubclass(cls, base):
            plain: Any = _load(data, base)
            return cls(plain)
    kinds = "a dataclass, a msgspec.Struct or a pydantic model"
    raise Mismatch("", f"{cls.__qualname__} is not a payload type; use {kinds}")


# Hints that msgspec refuses.


class _StandIn(type):
    """The class of classes that take the place of a type in a hint; each builds that type."""

    build: Callable[[Any], object]

    def __instancecheck__(cls, instance: object) -> bool:
        return True  # msgspec asks whether the hook returned what the hint says


def _stand_in(name: str, build: Callable[[Any], object]) -> Any:
    stand_in = _StandIn(name, (), {})
    stand_in.build = build
    return stand_in


def _fitted(hint: Any) -> Any:
    """Return *hint* with stand-ins for what msgspec cannot build by itself."""
    refusal = _refusal(hint)
    if refusal is None:
        return hint
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _fitted(args[0])
    if origin in (typing.Union, types.UnionType):
        union = functools.reduce(operator.or_, [_fitted(arg) for arg in args])
        return union if _refusal(union) is None else _stand_in("Union", functools.partial(_choose, args))
    if origin is not None and _refusal(origin) is None:
        return origin[tuple(arg if arg is Ellipsis else _fitted(arg) for arg in args)]
    for alias in ("__supertype__", "__value__"):  # NewType and `type X = ...`
        if hasattr(hint, alias):
            return _fitted(getattr(hint, alias))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _stand_in(hint.__name__, functools.partial(_member, hint))
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, msgspec.Struct)):
        return _stand_in(hint.__name__, functools.partial(_record, hint, _fields(hint)))
    raise InvalidRequest(f"payloads cannot have the type {hint}: {refusal}")


def _refusal(hint: Any) -> str | None:
    try:
        msgspec.json.Decoder(hint)
    except TypeError as error:
        return str(error)
    except NameError as error:
        raise InvalidRequest(
            f"payload type {hint}: {error}; define the classes of its fields at module level"
        ) from None
    return None


def _choose(members: tuple[Any, ...], data: Json) -> object:
    """Build the first member that gives this very JSON again, else the first that fits."""
    fitting: list[object] = []
    reasons: list[str] = []
    for member in members:
        try:
            value = _load(data, member)
        except Mismatch as mismatch:
            reason = f"{mismatch.path} {mismatch.reason}".strip()
            reasons.append(f"{getattr(member, '__name__', member)} ({reason})")
            continue
        if canonical(encode(value)) == canonical(data):
            return value
        fitting.append(value)
    if not fitting:
        raise Mismatch("", f"fits none of {'; '.join(reasons)}")
    return fitting[0]


def _member(cls: type[enum.Enum], data: Json) -> object:
    wanted = canonical(data)
    for member in cls:
        if canonical(encode(member)) == wanted:
            return member
    try:
        return cls(data)  # a combination of flags, or _missing_
    except ValueError:
        raise Mismatch("", f"expected one of the {len(cls)} values of {cls.__name__}") from None


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    """One field of a record: its names in Python and JSON, and whether it may be missing."""

    name: str
    key: str
    hint: Any
    init: bool
    required: bool


def _fields(cls: Any) -> list[_Field]:
    hints = typing.get_type_hints(cls, include_extras=True)
    if dataclasses.is_dataclass(cls):
        if any(isinstance(hint, dataclasses.InitVar) for hint in hints.values()):
            raise InvalidRequest(f"payload type {cls}: an InitVar is not stored; make it a field")
        empty = dataclasses.MISSING
        return [
            _Field(f.name, f.name, hints[f.name], f.init, f.default is empty and f.default_factory is empty)
            for f in dataclasses.fields(cls)
        ]
    return [
        _Field(f.name, f.encode_name, hints[f.name], init=True, required=f.required)
        for f in msgspec.structs.fields(cls)
    ]


def _record(cls: Any, fields: list[_Field], data: Json) -> object:
    name = cls.__qualname__
    if not isinstance(data, dict):
        raise Mismatch("", f"expected an object for {name}")
    found: dict[str, object] = {}
    for field in fields:
        if field.key in data:
            try:
                found[field.name] = _load(data[field.key], field.hint)
            except Mismatch as mismatch:
                raise Mismatch(f".{field.key}{mismatch.path}", mismatch.reason) from mismatch.__cause__
        elif field.required and field.init:
            raise Mismatch("", f"the field {field.key!r} is missing, and {name} has no default for it")
    given = [field.name for field in fields if field.init and field.name in found]
    record = cls(**{name: found.pop(name) for name in given})
    for attribute, value in found.items():
        object.__setattr__(record, attribute, value)
    return record
