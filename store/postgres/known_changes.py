"""What a group of known appends came to, as ``tidewheel_write_known_v1`` takes it.

What nearly every append writes has arrays of its own, one per column, and is neither turned into JSON here
nor out of it there: events, a run that moved on, a task that was opened or closed, what the bus is owed. The
rest goes as ``Changes``.
"""

from __future__ import annotations

import datetime as dt
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from tidewheel.store.columns import micros
from tidewheel.store.postgres.arrays import bigints, byteas, texts
from tidewheel.store.postgres.changes import Changes
from tidewheel.store.postgres.json_rows import storable
from tidewheel.store.records import EventRecord, RunRecord, StepRecord
from tidewheel.store.stored_events import checksum

#: What may change in the row of a run that moves on; if anything else has, the whole row is written.
MOVING: Final = frozenset(
    {
        "phase", "last_seq", "token", "owner_message", "wake_at", "prev_seq", "has_unkeyed_steps",
        "updated_at", "ended_at",
    }
)  # fmt: skip
#: What is of its own in the row of a plain step: a task that was just scheduled, without a key or limits.
PLAIN: Final = frozenset(
    {"path", "function_name", "queue", "scheduled_seq", "scheduled_at", "owner", "due_at"}
)

_BIGINT: Final = struct.Struct("!q")
#: The version of jsonb's binary form.
_JSONB: Final = b"\x01"

Row = tuple[Any, ...]


def _all_but(record: type[msgspec.Struct], names: frozenset[str]) -> Callable[[Row], Row]:
    """Return what takes the fields of *record* that are not *names* out of its values."""
    fields = [field.name for field in msgspec.structs.fields(record)]
    return operator.itemgetter(*(place for place, name in enumerate(fields) if name not in names))


_unmoved = _all_but(RunRecord, MOVING)
_unplain = _all_but(StepRecord, PLAIN | {"step_id", "key_part"})
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_PLAIN_REST: Final = _unplain(
    msgspec.structs.astuple(
        StepRecord(
            path="",
            kind="function",
            function_name="",
            queue="",
            dispatch="inline",
            scheduled_seq=0,
            scheduled_at=_EPOCH,
            step_id="",
            key_part="",
        )
    )
)


class KnownChanges:
    """Rows by what has arrays, and ``rest``. All of it happens at *now*."""

    def __init__(self, now: dt.datetime) -> None:
        self.now = now
        self.rest = Changes()
        self._events: list[tuple[bytes, EventRecord]] = []
        self._moved: list[RunRecord] = []
        self._opened: list[tuple[bytes, StepRecord]] = []
        self._closed: list[tuple[bytes, str]] = []
        self._owed: list[tuple[bytes, int, int]] = []
        self._cleared: list[bytes] = []

    @property
    def events(self) -> int:
        """How many events there are."""
        return len(self._events)

    def add_events(self, key: bytes, events: Sequence[EventRecord]) -> None:
        """The next events of a run."""
        self._events += [(key, event) for event in events]

    def change_run(self, before: Row, run: RunRecord) -> None:
        """A run that had the values *before*."""
        if _unmoved(before) == _unmoved(msgspec.structs.astuple(run)):
            self._moved.append(run)
        else:
            self.rest.add_run(run, is_new=False)

    def open_step(self, key: bytes, step: StepRecord) -> None:
        """A step that was not there."""
        is_plain = step.path == step.step_id == step.key_part and step.scheduled_at == self.now
        if is_plain and _unplain(msgspec.structs.astuple(step)) == _PLAIN_REST:
            self._opened.append((key, step))
        else:
            self.rest.add_step(key, step)

    def close_step(self, key: bytes, path: str) -> None:
        """A step that was there."""
        self._closed.append((key, path))

    def add_outbox(self, key: bytes, first_seq: int, last_seq: int) -> None:
        """What the event bus is owed."""
        self._owed.append((key, first_seq, last_seq))

    def clear(self, key: bytes) -> None:
        """All that a run had open goes, before anything new comes."""
        self._cleared.append(key)

    def parameters(self) -> list[bytes | None]:
        """Return the arguments of the function, from *event_at* on, as Postgres's binary form has them."""
        rest = self.rest.as_json()
        return [
            _BIGINT.pack(micros(self.now)),
            *self._event_arrays(),
            *self._moved_arrays(),
            *self._opened_arrays(),
            byteas([key for key, _ in self._closed]),
            texts([path for _, path in self._closed]),
            byteas([key for key, _, _ in self._owed]),
            bigints([first for _, first, _ in self._owed]),
            bigints([last for _, _, last in self._owed]),
            byteas(self._cleared),
            None if rest is None else _JSONB + rest,
        ]

    def _event_arrays(self) -> list[bytes]:
        events = [event for _, event in self._events]
        stored = [event.stored for event in events]
        is_usual = all(one.version == 1 and one.codec == "json" for one in stored)
        return [
            byteas([key for key, _ in self._events]),
            bigints([event.run_seq for event in events]),
            texts([one.type for one in stored]),
            bigints([] if is_usual else [one.version for one in stored]),
            texts([] if is_usual else [one.codec for one in stored]),
            byteas([one.data for one in stored]),
            bigints([checksum(one.data) for one in stored]),
            byteas([event.public_key for event in events]),
            bigints([event.prev_seq for event in events]),
            byteas([event.public for event in events]),
        ]

    def _moved_arrays(self) -> list[bytes]:
        runs = self._moved
        return [
            byteas([run.key for run in runs]),
            texts([run.phase for run in runs]),
            bigints([run.last_seq for run in runs]),
            byteas([run.token for run in runs]),
            texts([_text(run.owner_message) for run in runs]),
            bigints([_micros(run.wake_at) for run in runs]),
            bigints([run.prev_seq for run in runs]),
            bigints([run.has_unkeyed_steps for run in runs]),
            bigints([_micros(run.ended_at) for run in runs]),
        ]

    def _opened_arrays(self) -> list[bytes]:
        steps = [step for _, step in self._opened]
        return [
            byteas([key for key, _ in self._opened]),
            texts([step.path for step in steps]),
            texts([storable(step.function_name) for step in steps]),
            texts([storable(step.queue) for step in steps]),
            bigints([step.scheduled_seq for step in steps]),
            texts([_text(step.owner) for step in steps]),
            bigints([_micros(step.due_at) for step in steps]),
        ]


def _text(text: str | None) -> str | None:
    return None if text is None else storable(text)


def _micros(at: dt.datetime | None) -> int | None:
    return None if at is None else micros(at)
