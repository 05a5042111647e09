"""How records look as rows: the same fields in the same order, each as what a database can hold.

A time is an integer, microseconds since the epoch; a tuple is JSON text; a truth value is 0 or 1.
"""

from __future__ import annotations

import datetime as dt
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from tidewheel.store.records import RunRecord, StepRecord, TimerRecord, WorkerRecord

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
#: In the year 2096: from somewhere after that a float has no room for microseconds.
_FAR = 4_000_000_000_000_000
_from_timestamp = dt.datetime.fromtimestamp
T = TypeVar("T", bound=msgspec.Struct)


def micros(at: dt.datetime) -> int:
    """Return *at* as the database has it."""
    return (at - _EPOCH) // _MICROSECOND


def moment(stored: int) -> dt.datetime:
    """Return the time that was stored."""
    if 0 <= stored < _FAR:
        return _from_timestamp(stored / 1_000_000, dt.UTC)  # quicker, and exact so far
    return _EPOCH + dt.timedelta(microseconds=stored)


def to_text(values: Sequence[Any]) -> str:
    """Return a tuple as the database has it."""
    return msgspec.json.encode(values).decode()


class Columns(Generic[T]):
    """Turns records of one class into rows, and back."""

    def __init__(self, record: type[T]) -> None:
        self._record = record
        fields = msgspec.structs.fields(record)
        self.names = tuple(field.name for field in fields)
        self._writers: list[tuple[int, Callable[[Any], Any]]] = []
        self._readers: list[tuple[int, Callable[[Any], Any]]] = []
        for place, field in enumerate(fields):
            types = kinds(field.type)
            if dt.datetime in types:
                self._writers.append((place, micros))
                self._readers.append((place, moment))
            elif bool in types:
                self._readers.append((place, bool))
            elif tuple in types:
                self._writers.append((place, to_text))
                self._readers.append((place, tuple_reader(field.type)))

    def row(self, record: T) -> list[Any]:
        """Return *record* as values for a statement, in the order of the fields."""
        values = list(msgspec.structs.astuple(record))
        for place, write in self._writers:
            if values[place] is not None:
                values[place] = write(values[place])
        return values

    def record(self, row: Iterable[Any]) -> T:
        """Return the record that a statement read, its columns being in the order of the fields."""
        values = list(row)
        for place, read in self._readers:
            if values[place] is not None:
                values[place] = read(values[place])
        return self._record(**dict(zip(self.names, values, strict=True)))


def kinds(annotation: Any) -> set[Any]:
    """Return the classes in *annotation*, an optional one being ``X | None``."""
    parts = typing.get_args(annotation) if typing.get_origin(annotation) is not tuple else ()
    return {typing.get_origin(part) or part for part in parts or (annotation,)}


def tuple_reader(annotation: Any) -> Callable[[Any], Any]:
    """Return what reads a tuple of this type from JSON text."""
    return msgspec.json.Decoder(annotation).decode


RUN = Columns(RunRecord)
STEP = Columns(StepRecord)
TIMER = Columns(TimerRecord)
WORKER = Columns(WorkerRecord)
