"""The rows of a journal, read: each is checked before it is believed.

Rule: a row that is missing, or is not what was written, is ``Unreadable`` and names its run and place. Other
runs are not concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias
from zlib import crc32

from tidewheel.journal.codec import CorruptEvent, UnknownCodec, UnknownEvent, decode
from tidewheel.journal.events import Entry
from tidewheel.store.columns import moment
from tidewheel.store.errors import Unreadable

#: ``first_seq``, ``last_seq``, ``at``, ``codec``, ``data``, ``checksum``.
PassageRow: TypeAlias = tuple[Any, ...]


def checksum(data: bytes) -> int:
    """Return what finds a flipped bit in *data*."""
    return crc32(data)


def entries_of(
    rows: Iterable[PassageRow], first_seq: int, last_seq: int, run_id: Callable[[], str]
) -> list[Entry]:
    """Return the events from *first_seq* to *last_seq*, of which *rows* have all, and maybe some around them.

    *run_id* is asked for where one cannot be read.
    """
    entries: list[Entry] = []
    expected = first_seq
    for first, last, written_at, codec, data, expected_sum in rows:
        if first > expected or expected > last_seq:
            break
        if not isinstance(data, bytes) or crc32(data) != expected_sum:
            raise Unreadable(run_id(), first, "its bytes are not those that were written")
        try:
            events = decode(data, codec)
        except (CorruptEvent, UnknownEvent, UnknownCodec) as error:
            raise Unreadable(run_id(), first + error.place, str(error)) from error
        if len(events) != last - first + 1:
            raise Unreadable(run_id(), first, f"there are {len(events)} events for {last - first + 1} places")
        at = moment(written_at)
        until = min(last, last_seq)
        entries += [
            Entry(seq, at, event)
            for seq, event in enumerate(events[expected - first : until - first + 1], expected)
        ]
        expected = until + 1
    if expected <= last_seq:
        raise Unreadable(run_id(), expected, "its row is missing")
    return entries
