"""The journal as JSON: what people export, keep in files and hand back.

A journal is a list of ``{"run_seq", "type", "at", "data"}``, one event per line.
What is read back is what was written: ``-0.0``, ``1e16``, NUL and big integers
survive. A reader tolerates more fields than it knows, and missing ones that no
rule needs. Storage has its own form in ``codec``.

``loads`` is for journals that must be right; ``read`` is for judging any bytes: it
never raises, says what could not be read, and keeps the rest.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType, inspect

from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.events import EVENT_TYPES, Entry, Event, Ordinal, Recorded

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Stands where an entry could not be read, so that the others keep their places.
UNREADABLE = Recorded(name="unreadable")
#: What decoding hostile bytes raises; ``RecursionError`` comes from deep nesting.
NOT_READABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
SHOWN_MAX = 60

_WHERE = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<where>.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")


class FormatError(InvalidRequest):
    """The bytes are not a journal; the message names the first problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.run_seq = problem.run_seq


class Problem(NamedTuple):
    """One thing that could not be read; ``run_seq`` is ``None`` where that is not known either."""

    run_seq: int | None
    message: str


class _Row(msgspec.Struct):
    run_seq: Ordinal
    type: str
    at: Annotated[dt.datetime, Meta(tz=True)] | None = None
    data: msgspec.Raw = msgspec.Raw(b"{}")


class _Numbered(msgspec.Struct):
    run_seq: Ordinal


class _Written(msgspec.Struct):
    run_seq: int
    type: str
    at: dt.datetime | UnsetType
    data: dict[str, Any]


_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_ROW = msgspec.json.Decoder(_Row)
_NUMBERED = msgspec.json.Decoder(_Numbered)
_EVENT: dict[str, msgspec.json.Decoder[Event]] = {
    name: msgspec.json.Decoder(kind) for name, kind in EVENT_TYPES.items()
}


def to_json(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return the journal as plain lists and dicts, ready for any JSON writer."""
    return [msgspec.to_builtins(_written(entry)) for entry in entries]


def dumps(entries: Iterable[Entry]) -> bytes:
    """Return the journal as a JSON list with one event per line."""
    lines = [msgspec.json.encode(_written(entry)) for entry in entries]
    return b"[\n" + b",\n".join(lines) + b"\n]\n" if lines else b"[]\n"


def loads(data: bytes) -> list[Entry]:
    """Read what ``dumps`` wrote, or raise ``FormatError`` naming the first problem."""
    entries, problems = read(data)
    if problems:
        raise FormatError(problems[0])
    return entries


def read(data: bytes) -> tuple[list[Entry], list[Problem]]:
    """Read any bytes: the entries, ``UNREADABLE`` where there is none, and what is wrong with them.

    An entry whose number cannot be read takes the number after its predecessor's.
    """
    try:
        rows = _LIST.decode(data)
    except msgspec.ValidationError:
        return [], [Problem(None, "a journal is a JSON list of events, and this is something else")]
    except NOT_READABLE as error:
        return [], [Problem(None, f"the journal cannot be read as JSON: {_plain(error)}")]
    entries: list[Entry] = []
    problems: list[Problem] = []
    previous = -1
    for index, raw in enumerate(rows):
        entry = _read_entry(raw)
        if isinstance(entry, Problem):
            problems.append(Problem(entry.run_seq, f"entry {index}: {entry.message}"))
            known = previous + 1 if entry.run_seq is None else entry.run_seq
            entry = Entry(known, None, UNREADABLE)
        previous = entry.run_seq
        entries.append(entry)
    return entries, problems


def canonical(value: object) -> bytes:
    """Return the one text that equal JSON values share: ``1``, ``1.0`` and ``true`` differ."""
    return msgspec.json.encode(value, order="sorted")


def _written(entry: Entry) -> _Written:
    at = UNSET if entry.at is None else entry.at
    # The event's own JSON would say its type once more.
    data = {name: value for name, value in msgspec.structs.asdict(entry.event).items() if value is not UNSET}
    return _Written(entry.run_seq, type(entry.event).__name__, at, data)


def _read_entry(raw: msgspec.Raw) -> Entry | Problem:
    try:
        row = _ROW.decode(raw)
    except NOT_READABLE as error:
        return Problem(_number_of(raw), _plain(error))
    decoder = _EVENT.get(row.type)
    if decoder is None:
        return Problem(row.run_seq, f"type {shown(row.type)} is not an event this version knows")
    try:
        return Entry(row.run_seq, row.at, decoder.decode(row.data))
    except NOT_READABLE as error:
        return Problem(row.run_seq, f"{row.type}: {_plain(error, EVENT_TYPES[row.type])}")


def _number_of(raw: msgspec.Raw) -> int | None:
    """The number of an entry that is otherwise unreadable, so that people find it."""
    try:
        return _NUMBERED.decode(raw).run_seq
    except NOT_READABLE:
        return None


def shown(text: str) -> str:
    """Return *text* quoted, and cut where it is too long for a message."""
    return repr(text) if len(text) <= SHOWN_MAX else repr(text[: SHOWN_MAX - 3]) + "..."


def _plain(error: Exception, kind: type[Event] | None = None) -> str:
    """Say what a decoder's *error* means, without its notation; *kind* is the event it was reading."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "it holds text that is not valid UTF-8"
    found = _WHERE.fullmatch(str(error))
    assert found is not None, "the pattern matches every text"
    what, inside = found["what"], found["where"]
    where = inside or ("data" if kind else "the entry")
    missing = _MISSING.fullmatch(what)
    if missing is not None:
        return f"{inside + '.' if inside else ''}{missing['name']} is missing"
    if "matching regex" in what:
        or_cancel = " or the word 'cancel'" if where.startswith("applied") else ""
        return f"{where} must be a path like '1' or '1.0'{or_cancel}"
    if "RFC3339" in what or "timezone" in what:
        return f"{where} must be an RFC 3339 time with an offset, like '2025-01-31T12:00:00Z'"
    if "out of range" in what:
        return f"{where} holds a number that is too large"
    if "enum value" in what:
        return f"{where} must be {_choices(kind, where)}"
    if what.startswith("Expected "):
        return f"{where} must be {what.removeprefix('Expected ').replace('`', '')}"
    return f"{inside}: {what}" if inside else what


@functools.cache
def _choices(kind: type[Event] | None, name: str) -> str:
    """The words that the field *name* may hold, as far as its event says so itself."""
    fields = inspect.type_info(kind).fields if kind else ()  # type: ignore[attr-defined]  # a struct's
    for each in fields:
        for part in getattr(each.type, "types", (each.type,)):
            if each.name == name and isinstance(part, inspect.LiteralType):
                return "one of " + ", ".join(repr(value) for value in part.values)
    return "another word"
