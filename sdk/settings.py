"""Configuration: what is passed, then the environment, then the default.

This is the one place that reads the environment.

A class of settings says everything about its keys in one place, and is a frozen value:

    class KeeperSettings(Settings, frozen=True, kw_only=True):
        "How the keeper looks after runs."

        interval: Annotated[float, Key("TIDEWHEEL_KEEPER_INTERVAL", "Between two looks.", Unit.SECONDS)] = 1.0

``from_environment`` reads one, refusing what cannot work and saying what to write instead;
``settings_page`` writes ``docs/configuration.md`` from the same classes. Fields may be text, whole
numbers, numbers, booleans, tuples of text (a list with commas), and any of these or None.
A variable that is set to nothing counts as not set. What may hold a password can be kept in a file
instead, which ``<variable>_FILE`` names: everybody who may look at a process sees its environment.
"""

from __future__ import annotations

import enum
import functools
import math
import os
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Self, get_args, get_origin, get_type_hints

import msgspec

from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.ids import check_name

_TRUE: Final = frozenset({"1", "true"})
_FALSE: Final = frozenset({"0", "false"})
#: An error quotes at most this much of what it refuses.
_SHOWN_MAX: Final = 80
#: A file that holds one setting is shorter than this.
_FILE_MAX_BYTES: Final = 65_536


class Unit(enum.Enum):
    """What a number counts, as the documentation shows it."""

    SECONDS = "seconds"
    MILLISECONDS = "milliseconds"
    DAYS = "days"
    BYTES = "bytes"
    EVENTS = "events"
    COUNT = ""


@dataclass(frozen=True, slots=True)
class Key:
    """A setting's variable, what it means, and what it may be.

    ``least`` and ``most`` bound a number; ``check`` refuses a value with ``InvalidRequest``. A
    ``secret`` may hold a password: errors do not quote it, and it may be kept in a file.
    """

    variable: str
    meaning: str
    unit: Unit = Unit.COUNT
    least: float | None = None
    most: float | None = None
    check: Callable[[Any], object] | None = None
    secret: bool = False

    @property
    def file_variable(self) -> str | None:
        """The variable that names a file with the value, for what may hold a password."""
        return f"{self.variable}_FILE" if self.secret else None


@dataclass(frozen=True, slots=True)
class Field:
    """One setting of a class: its key, its type without ``None``, and its default."""

    name: str
    key: Key
    type: Any
    optional: bool
    default: Any


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all classes of settings. Making one checks it."""

    def __post_init__(self) -> None:
        """Refuse values that can never work, naming the field."""
        for field in fields_of(type(self)):
            _check(field, getattr(self, field.name), field.name)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> Self:
        """Return the settings: *overrides* that are not None, then *environ*, then the defaults.

        Without *environ* the process's own environment is read. Raises ``InvalidRequest``, which names
        the variable or argument and says what to write.
        """
        known = {field.name: field for field in fields_of(cls)}
        assert overrides.keys() <= known.keys(), f"{cls.__name__} has no {overrides.keys() - known.keys()}"
        found = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        for field in known.values():
            passed = overrides.get(field.name)
            if passed is not None:
                values[field.name] = passed
                continue
            variable, text = _found(field.key, found)
            if text:
                value = values[field.name] = _parsed(field, text)
                _check(field, value, variable)
        return cls(**values)

    @classmethod
    def is_in_environment(cls, name: str, environ: Mapping[str, str] | None = None) -> bool:
        """Tell whether *environ*, or the process's own, says what the setting *name* is."""
        (key,) = [field.key for field in fields_of(cls) if field.name == name]
        return bool(_found(key, os.environ if environ is None else environ)[1])


def variables_of_others(prefix: str) -> dict[str, str]:
    """Return those variables of the process that begin with *prefix*, which others than us give a meaning."""
    return {name: text for name, text in os.environ.items() if name.startswith(prefix)}


@functools.cache
def fields_of(cls: type[Settings]) -> tuple[Field, ...]:
    """Return the settings of *cls*, in the order they are written."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple(_field(info.name, hints[info.name], info.default) for info in msgspec.structs.fields(cls))


def _field(name: str, hint: Any, default: Any) -> Field:
    assert get_origin(hint) is Annotated, f"{name} has no Key"
    assert default is not msgspec.NODEFAULT, f"{name} has no default"
    bare, *notes = get_args(hint)
    (key,) = [note for note in notes if isinstance(note, Key)]
    optional = isinstance(bare, types.UnionType) and types.NoneType in get_args(bare)
    if optional:
        (bare,) = [part for part in get_args(bare) if part is not types.NoneType]
    return Field(name, key, bare, optional, default)


# Reading text


def _found(key: Key, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the variable that says what the setting is, and what it or its file says; "" for nothing."""
    text = environ.get(key.variable, "").strip()
    file = environ.get(key.file_variable, "").strip() if key.file_variable else ""
    if not file or key.file_variable is None:
        return key.variable, text
    if text:
        raise InvalidRequest(f"{key.variable} and {key.file_variable} are both set; leave one of them out")
    return key.file_variable, _read(key.file_variable, file)


def _read(variable: str, name: str) -> str:
    """Return what the file called *name* holds, which is never quoted."""
    try:
        with Path(name).open("rb") as file:
            content = file.read(_FILE_MAX_BYTES + 1)
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or str(problem)
        raise InvalidRequest(f"{variable}: {name!r} cannot be read: {why}") from None
    if len(content) > _FILE_MAX_BYTES:
        raise InvalidRequest(
            f"{variable}: {name!r} has more than {_FILE_MAX_BYTES:,} bytes; is it the right file?"
        )
    try:
        text = content.decode().strip()
    except UnicodeDecodeError:
        raise InvalidRequest(f"{variable}: {name!r} is not text in UTF-8") from None
    if not text:
        raise InvalidRequest(f"{variable}: {name!r} is empty; write the value into it")
    return text


def _parsed(field: Field, text: str) -> Any:
    """Return what *text* says in the field's type."""
    if field.type is bool:
        word = text.lower()
        if word not in _TRUE | _FALSE:
            raise _refused(field, field.key.variable, text, "write 1 or 0, true or false")
        return word in _TRUE
    if field.type is int or field.type is float:
        try:
            return field.type(text)
        except ValueError:
            raise _refused(field, field.key.variable, text, f"write {_wanted(field)}") from None
    if field.type is str:
        return text
    return tuple(part.strip() for part in text.split(",") if part.strip())


# Checking values


def _check(field: Field, value: Any, called: str) -> None:
    """Refuse *value* where it can never work; *called* is how the caller knows the setting."""
    if value is None and field.optional:
        return
    if not _is_of(value, field.type):
        raise _refused(field, called, value, f"write {_wanted(field)}")
    key = field.key
    if isinstance(value, int | float) and not isinstance(value, bool):
        too_small = key.least is not None and value < key.least
        too_large = key.most is not None and value > key.most
        if too_small or too_large or (isinstance(value, float) and not math.isfinite(value)):
            raise _refused(field, called, value, f"write {_wanted(field)}")
    if key.check is not None:
        try:
            key.check(value)
        except InvalidRequest as error:
            raise InvalidRequest(f"{called}: {error}") from None


def _is_of(value: Any, wanted: Any) -> bool:
    if wanted is bool:
        return isinstance(value, bool)
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if wanted is str:
        return isinstance(value, str) and value.isprintable() and bool(value)
    return isinstance(value, tuple) and all(isinstance(part, str) and part for part in value)


def _wanted(field: Field) -> str:
    """Say what the setting may be."""
    key = field.key
    if field.type not in (int, float):
        plain = {bool: "True or False", str: "text"}
        return plain.get(field.type, "a list with commas between")
    words = "a whole number" if field.type is int else "a number"
    if key.unit is not Unit.COUNT:
        words += f" of {key.unit.value}"
    if key.least is not None and key.most is not None:
        return f"{words} from {_plain(key.least)} to {_plain(key.most)}"
    if key.least is not None:
        return f"{words}, at least {_plain(key.least)}"
    return words if key.most is None else f"{words}, at most {_plain(key.most)}"


def _plain(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else str(number)


def _refused(field: Field, called: str, value: object, instead: str) -> InvalidRequest:
    shown = "its value" if field.key.secret else repr(value)
    if len(shown) > _SHOWN_MAX:
        shown = shown[: _SHOWN_MAX - 3] + "..."
    return InvalidRequest(f"{called}: {shown} cannot be used; {instead} ({field.key.meaning.rstrip('.')})")


# The keys that everything reads


def _check_url(text: str) -> None:
    scheme, separator, _ = text.partition("://")
    if not scheme or not separator:
        raise InvalidRequest("this is no URL; write something like sqlite:///tidewheel.db or embedded://")


#: Words of our own in the names of queues and exchanges: a namespace's queues would be taken for others.
_RESERVED: Final = frozenset({"work", "sticky", "reply", "poison", "commands", "events", "alerts"})


def _check_namespace(text: str) -> None:
    check_name(text, "namespace")
    if text in _RESERVED:
        raise InvalidRequest(f"namespace {text!r} is a word in our own queues' names; take another")


class ConnectionSettings(Settings, frozen=True, kw_only=True):
    """Where everything is. Every process of a deployment has the same."""

    store: Annotated[
        str,
        Key(
            "TIDEWHEEL_STORE",
            "The URL of the store, where journals are kept.",
            check=_check_url,
            secret=True,
        ),
    ] = "sqlite:///tidewheel.db"
    broker: Annotated[
        str,
        Key(
            "TIDEWHEEL_BROKER",
            "The URL of the broker, which carries work items. `embedded://` is a file beside the store.",
            check=_check_url,
            secret=True,
        ),
    ] = "embedded://"
    namespace: Annotated[
        str,
        Key(
            "TIDEWHEEL_NAMESPACE",
            "The namespace of runs and queues: runs of one never see those of another.",
            check=_check_namespace,
        ),
    ] = "default"
