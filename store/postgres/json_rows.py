r"""How records travel to the functions in the database and back: as JSON objects by the columns' names.

A time is microseconds since the epoch, bytes are ``\x`` and hexadecimal digits, a tuple is a text with JSON
in it; the tables hold the same as SQLite's.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from tidewheel.store.columns import kinds, micros, moment, to_text, tuple_reader
from tidewheel.store.records import RunRecord, StepRecord, TimerRecord, WorkerRecord

T = TypeVar("T", bound=msgspec.Struct)


def to_hex(data: bytes) -> str:
    """Return *data* as Postgres writes bytes."""
    return "\\x" + data.hex()


def from_hex(text: str) -> bytes:
    """Return the bytes that Postgres wrote."""
    return bytes.fromhex(text[2:])


def storable(text: str) -> str:
    """Return *text* as a column of Postgres can hold it: it has no place for NUL and halves of characters."""
    if "\0" not in text and text.isascii():
        return text
    return text.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode()


class JsonRows(Generic[T]):
    """Turns records of one class into objects, and back; *renamed* gives fields their columns' names."""

    def __init__(self, record: type[T], **renamed: str) -> None:
        self._record = record
        fields = msgspec.structs.fields(record)
        self._columns = tuple(renamed.get(field.name, field.name) for field in fields)
        self._names = tuple(field.name for field in fields)
        self._writers: list[tuple[str, Callable[[Any], Any]]] = []
        self._readers: list[tuple[int, Callable[[Any], Any]]] = []
        for place, field in enumerate(fields):
            column, types = self._columns[place], kinds(field.type)
            if dt.datetime in types:
                self._writers.append((column, micros))
                self._readers.append((place, moment))
            elif bytes in types:
                self._writers.append((column, to_hex))
                self._readers.append((place, from_hex))
            elif tuple in types:
                self._writers.append((column, to_text))
                self._readers.append((place, tuple_reader(field.type)))
            elif str in types:
                self._writers.append((column, storable))

    def written(self, record: T, **more: Any) -> dict[str, Any]:
        """Return *record* as an object, with *more* columns."""
        row = dict(zip(self._columns, msgspec.structs.astuple(record), strict=True))
        for column, write in self._writers:
            value = row[column]
            if value is not None:
                row[column] = write(value)
        return row | more if more else row

    def record(self, row: dict[str, Any]) -> T:
        """Return the record that was read; columns that it does not know are a newer release's."""
        values = [row[column] for column in self._columns]
        for place, read in self._readers:
            if values[place] is not None:
                values[place] = read(values[place])
        return self._record(**dict(zip(self._names, values, strict=True)))


RUN = JsonRows(RunRecord, key="run_key", inline="inline_steps")
STEP = JsonRows(StepRecord)
TIMER = JsonRows(TimerRecord)
WORKER = JsonRows(WorkerRecord)
