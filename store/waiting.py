"""Small pure things that every store needs: keys that sort by time, and growing pauses."""

from __future__ import annotations

import datetime as dt

#: A hint that is not followed is repeated after 1, 2, 4, ... seconds, at most this many.
BACKOFF_MAX_S = 60.0
_SECOND = dt.timedelta(seconds=1)


def time_ordered_key(now: dt.datetime, chance: int) -> bytes:
    """Return sixteen bytes that sort by *now*; *chance* is eighty random bits."""
    milliseconds = int(now.timestamp() * 1000)
    return milliseconds.to_bytes(6, "big") + chance.to_bytes(10, "big")


def later(fire_at: dt.datetime, now: dt.datetime) -> dt.datetime:
    """Return when a timer that is claimed *now* is due again: the later it is, the longer that takes."""
    return now + min(max(now - fire_at, _SECOND), dt.timedelta(seconds=BACKOFF_MAX_S))


def backoff(times: int) -> dt.timedelta:
    """Return how long to wait after something was tried *times* times."""
    return dt.timedelta(seconds=min(2.0 ** min(times, 16), BACKOFF_MAX_S))
