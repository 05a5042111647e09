"""How the tables of the documentation are worded: types, defaults, docstrings, Markdown.

Only ``document`` uses this. Types are read with ``msgspec.inspect``, so what a page
says of a field is what the decoder checks.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec import UNSET
from msgspec import inspect as shapes

from tidewheel.journal.events import Applied, Path

_PATTERNS: Final[dict[str | None, str]] = {
    None: "text",
    shapes.type_info(Path).pattern: "path",  # type: ignore[attr-defined]  # text with a pattern
    shapes.type_info(Applied).pattern: "path or `cancel`",  # type: ignore[attr-defined]  # as above
}
_PLAIN: Final[dict[type[shapes.Type], str]] = {
    shapes.AnyType: "any JSON value",
    shapes.BoolType: "true or false",
    shapes.FloatType: "number",
    shapes.DateTimeType: "time",
    shapes.NoneType: "null",
}


def in_words(shape: shapes.Type) -> str:
    """Return what the JSON of a field of type *shape* holds."""
    match shape:
        case shapes.IntType(ge=None):
            return "integer"
        case shapes.IntType(ge=least):
            return f"integer from {least}"
        case shapes.StrType(pattern=pattern):
            return _PATTERNS[pattern]
        case shapes.LiteralType(values=values):
            return _or([code(str(value)) for value in values])
        case shapes.UnionType(types=types):
            return _or([in_words(each) for each in types])
        case shapes.ListType(item_type=item) | shapes.VarTupleType(item_type=item):
            return f"list of {in_words(item)}"
        case shapes.DictType(value_type=value):
            return f"object of {in_words(value)}"
        case shapes.StructType(cls=cls):
            return f"[{cls.__name__}](#{cls.__name__.lower()})"
        case _:
            return _PLAIN[type(shape)]


def field_rows(kind: type[msgspec.Struct]) -> Iterator[list[str]]:
    """Return a row for each field of *kind*: its name in JSON, its type, whether it must be there."""
    for field in msgspec.structs.fields(kind):
        yield [code(field.encode_name), in_words(shapes.type_info(field.type)), _required(field)]


def _required(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "yes"
    if field.default is UNSET:
        return "no"
    made = field.default_factory
    default = field.default if made is msgspec.NODEFAULT else made()
    return f"no, else {code(msgspec.json.encode(default).decode())}"


def said(thing: object) -> str:
    """Return the docstring of *thing* on one line, in Markdown."""
    return " ".join((inspect.getdoc(thing) or "").split()).replace("``", "`")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def listed(names: Iterable[str]) -> str:
    """Return *names* as code, with commas between."""
    return ", ".join(code(name) for name in names)


def code(text: str) -> str:
    """Return *text* as code in Markdown."""
    return f"`{text}`"


def _or(words: list[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last
