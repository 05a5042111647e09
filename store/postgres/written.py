"""What an append came to, as the function in the database takes it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import msgspec

from tidewheel.store.columns import micros
from tidewheel.store.postgres.arrays import BigintArray, ByteaArray, TextArray
from tidewheel.store.records import EventRecord
from tidewheel.store.stored_events import checksum


class Written:
    """Rows by table, and the new events of all runs, each with its run's key."""

    def __init__(self, rows: dict[str, list[Any]], events: Sequence[tuple[bytes, EventRecord]]) -> None:
        self._rows = rows
        self._events = events

    @property
    def events(self) -> int:
        """How many events there are."""
        return len(self._events)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self._rows and not self._events

    def parameters(self, now: dt.datetime) -> list[Any]:
        """Return the arguments of ``tidewheel_write``; all events are of one moment, *now*."""
        events = [event for _, event in self._events]
        return [
            msgspec.json.encode(self._rows).decode(),
            micros(now),
            ByteaArray.of([key for key, _ in self._events]),
            BigintArray.of([event.run_seq for event in events]),
            TextArray.of([event.stored.type for event in events]),
            BigintArray.of([event.stored.version for event in events]),
            TextArray.of([event.stored.codec for event in events]),
            ByteaArray.of([event.stored.data for event in events]),
            BigintArray.of([checksum(event.stored.data) for event in events]),
            ByteaArray.of([event.public_key for event in events]),
            BigintArray.of([event.prev_seq for event in events]),
            ByteaArray.of([event.public for event in events]),
        ]
