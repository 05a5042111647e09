"""Events as rows hold them: each is checked before it is believed.

Rule: a row that is missing, or is not what was written, is ``Unreadable`` and names its run and place. Other
runs are not concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias
from zlib import crc32

from tidewheel.journal.codec import read
from tidewheel.journal.errors import TidewheelError
from tidewheel.journal.events import Entry
from tidewheel.store.columns import moment
from tidewheel.store.errors import Unreadable

#: ``run_seq``, ``at``, ``type``, ``version``, ``codec``, ``data``, ``checksum``.
EventRow: TypeAlias = tuple[Any, ...]


def checksum(data: bytes) -> int:
    """Return what finds a flipped bit in *data*."""
    return crc32(data)


def entries_of(
    rows: Iterable[EventRow], first_seq: int, last_seq: int, run_id: Callable[[], str]
) -> list[Entry]:
    """Return the events from *first_seq* to *last_seq*; *run_id* is asked for where one cannot be read."""
    entries: list[Entry] = []
    expected, at_stored, at = first_seq, None, None
    for run_seq, written_at, type_, version, codec, data, expected_sum in rows:
        if run_seq != expected:
            break
        if written_at != at_stored or at is None:  # the events of one commit share their time
            at_stored, at = written_at, moment(written_at)
        if not isinstance(data, bytes) or crc32(data) != expected_sum:
            raise Unreadable(run_id(), run_seq, "its bytes are not those that were written")
        try:
            event = read(type_, version, codec, data)
        except TidewheelError as error:
            raise Unreadable(run_id(), run_seq, str(error)) from error
        entries.append(Entry(expected, at, event))
        expected += 1
    if expected <= last_seq:
        raise Unreadable(run_id(), expected, "its row is missing")
    return entries
