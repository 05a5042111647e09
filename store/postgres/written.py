"""What an append came to, as the function in the database takes it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import msgspec

from tidewheel.store.columns import micros
from tidewheel.store.passages import checksum
from tidewheel.store.postgres.arrays import BigintArray, ByteaArray, TextArray
from tidewheel.store.records import Passage


class Written:
    """Rows by table, and the new passages of all runs, each with its run's key."""

    def __init__(self, rows: dict[str, list[Any]], passages: Sequence[tuple[bytes, Passage]]) -> None:
        self._rows = rows
        self._passages = passages

    @property
    def events(self) -> int:
        """How many events there are."""
        return sum(passage.last_seq - passage.first_seq + 1 for _, passage in self._passages)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self._rows and not self._passages

    def parameters(self, now: dt.datetime) -> list[Any]:
        """Return the arguments of ``tidewheel_write``; all events are of one moment, *now*."""
        passages = [passage for _, passage in self._passages]
        return [
            msgspec.json.encode(self._rows).decode(),
            micros(now),
            ByteaArray.of([key for key, _ in self._passages]),
            BigintArray.of([passage.first_seq for passage in passages]),
            BigintArray.of([passage.last_seq for passage in passages]),
            TextArray.of([passage.codec for passage in passages]),
            ByteaArray.of([passage.data for passage in passages]),
            BigintArray.of([checksum(passage.data) for passage in passages]),
            ByteaArray.of([passage.public for passage in passages]),
        ]
