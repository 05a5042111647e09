"""Users' own projections: a class whose instances are the rows of a table, kept from public events.

Its fields are the columns; those without a default are the key. ``key(event)`` says which row an event is
about, None if it is about none; ``row.reduce(event)`` returns the row after it. Both are pure: they are
called again whenever an event has to be read again, and have their effect once. A row that is not there yet
begins with the defaults.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from typing import Any, Final

from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.ids import check_name
from tidewheel.journal.public import PublicEvent
from tidewheel.store.projections import Column, Key, Kind, ProjectionTable, Row, check_identifier

_KINDS: Final[dict[Any, Kind]] = {str: "text", int: "integer", float: "real", bool: "boolean"}
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: What no text column of Postgres has a place for, and what stands in for it.
_NUL: Final = "\0"
_SIGN: Final = "\N{SYMBOL FOR NULL}"
#: What an integer column has room for.
_INTEGER_MAX: Final = 2**63


@dataclasses.dataclass(frozen=True, slots=True)
class ProjectionDefinition:
    """A projection that an app has: the class of its rows, and their table."""

    name: str
    cls: type[Any]
    table: ProjectionTable

    @property
    def fn(self) -> type[Any]:
        """What was registered."""
        return self.cls

    def key_of(self, event: PublicEvent) -> Key | None:
        """Return the key of the row that *event* is about; None if it is about none."""
        given = self.cls.key(event)
        if given is None:
            return None
        parts = given if isinstance(given, tuple) else (given,)
        if len(parts) != self.table.key_count:
            raise TypeError(f"key() gave {len(parts)} values for {self.table.key_count} columns")
        return self._checked(self.table.key, parts)

    def reduced(self, key: Key, row: Row | None, event: PublicEvent) -> Row:
        """Return the row after *event*; *row* is None where there is none yet."""
        values = key if row is None else row
        names = (column.name for column in self.table.columns)
        before = self.cls(**dict(zip(names, values, strict=False)))
        after = before.reduce(event)
        if not isinstance(after, self.cls):
            raise TypeError(f"reduce() gave {type(after).__name__}, not {self.cls.__name__}")
        made = tuple(getattr(after, column.name) for column in self.table.columns)
        if made[: self.table.key_count] != key:
            raise TypeError("reduce() changed the key of a row")
        return self._checked(self.table.columns, made)

    @staticmethod
    def _checked(columns: tuple[Column, ...], values: tuple[Any, ...]) -> Row:
        """Return *values* as the columns can hold them, or raise ``TypeError``."""
        made = []
        for column, value in zip(columns, values, strict=True):
            fits = _KINDS.get(type(value)) == column.kind or (value is None and column.is_nullable)
            if column.kind == "real" and type(value) is int:
                fits, value = True, float(value)  # noqa: PLW2901 - as the column has it
            if not fits:
                raise TypeError(f"{column.name} is {type(value).__name__}, and its column is {column.kind}")
            if column.kind == "integer" and value is not None and not -_INTEGER_MAX <= value < _INTEGER_MAX:
                raise TypeError(f"{column.name} has no room for {value}")
            made.append(value.replace(_NUL, _SIGN) if isinstance(value, str) else value)
        return tuple(made)


def projection_definition(cls: type[Any], *, name: str | None, table: str | None) -> ProjectionDefinition:
    """Return the definition of *cls*, or refuse it with ``InvalidRequest`` that says what to write."""
    fields = dataclasses.fields(cls) if isinstance(cls, type) and dataclasses.is_dataclass(cls) else ()
    if not fields:
        raise InvalidRequest(f"{cls!r} is no projection: write a dataclass whose fields are the columns")
    if not cls.__dataclass_params__.frozen:
        raise InvalidRequest(f"{cls.__name__} has to be frozen: write @dataclass(frozen=True)")
    for method in ("key", "reduce"):
        if not callable(getattr(cls, method, None)):
            raise InvalidRequest(f"{cls.__name__} has no {method}(): see docs/projections.md")
    if not isinstance(inspect.getattr_static(cls, "key"), classmethod | staticmethod):
        raise InvalidRequest(
            f"{cls.__name__}.key() is asked before there is a row: write @classmethod above it"
        )
    known = check_name(name if name is not None else cls.__name__, "projection")
    hints = typing.get_type_hints(cls)
    columns = tuple(_column(cls, field.name, hints[field.name]) for field in fields)
    is_key = [field.default is field.default_factory is dataclasses.MISSING for field in fields]
    key_count = sum(is_key)
    if not key_count or not all(is_key[:key_count]):
        raise InvalidRequest(
            f"{cls.__name__} has no key: fields without a default are the key, and come before the others"
        )
    if any(column.is_nullable for column in columns[:key_count]):
        raise InvalidRequest(f"{cls.__name__}: a column of the key cannot be None")
    spec = ProjectionTable(
        projection=known,
        name=check_identifier(table if table is not None else _snake(cls.__name__), "table"),
        columns=columns,
        key_count=key_count,
    )
    return ProjectionDefinition(name=known, cls=cls, table=spec)


def _column(cls: type[Any], name: str, hint: Any) -> Column:
    parts = set(typing.get_args(hint)) if isinstance(hint, types.UnionType) else {hint}
    is_nullable = types.NoneType in parts
    parts.discard(types.NoneType)
    kind = _KINDS.get(parts.pop()) if len(parts) == 1 else None
    if kind is None:
        raise InvalidRequest(f"{cls.__name__}.{name}: write str, int, float or bool, or one of them | None")
    return Column(check_identifier(name, "column"), kind, is_nullable)


def _snake(name: str) -> str:
    return _WORD.sub("_", name).lower()
