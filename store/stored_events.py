"""Events as rows hold them: each is checked before it is believed.

Rule: a row that is missing, or is not what was written, is ``Unreadable`` and names its run and place. Other
runs are not concerned.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from tidewheel.journal.codec import StoredEvent, decode
from tidewheel.journal.errors import TidewheelError
from tidewheel.journal.events import Entry
from tidewheel.store.columns import moment
from tidewheel.store.errors import Unreadable

#: ``run_seq``, ``at``, ``type``, ``version``, ``codec``, ``data``, ``checksum``.
EventRow: TypeAlias = tuple[Any, ...]


def checksum(data: bytes) -> int:
    """Return what finds a flipped bit in *data*."""
    return zlib.crc32(data)


def entries_of(
    rows: Iterable[EventRow], first_seq: int, last_seq: int, run_id: Callable[[], str]
) -> list[Entry]:
    """Return the events from *first_seq* to *last_seq*; *run_id* is asked for where one cannot be read."""
    entries: list[Entry] = []
    expected, at_stored, at = first_seq, None, None
    for row in rows:
        if row[0] != expected:
            break
        if row[1] != at_stored or at is None:  # the events of one commit share their time
            at_stored, at = row[1], moment(row[1])
        entries.append(Entry(expected, at, _decoded(row, run_id)))
        expected += 1
    if expected <= last_seq:
        raise Unreadable(run_id(), expected, "its row is missing")
    return entries


def _decoded(row: EventRow, run_id: Callable[[], str]) -> Any:
    run_seq, _, type_, version, codec, data, expected_sum = row
    if not isinstance(data, bytes) or checksum(data) != expected_sum:
        raise Unreadable(run_id(), run_seq, "its bytes are not those that were written")
    try:
        return decode(StoredEvent(type_, version, codec, data))
    except TidewheelError as error:
        raise Unreadable(run_id(), run_seq, str(error)) from error
