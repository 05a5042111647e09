"""How far behind a projector is: how long ago what it projects now was written.

Pure: time is an argument. The contract promises a second in normal operation, and that people are told beyond
five.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Final

from tidewheel.journal.public import PublicEvent

#: While it lasts, people are told again after this long.
AGAIN_S: Final = 60.0
#: It is over once the lag is below this part of the limit.
OVER_PART: Final = 0.5


class Lag:
    """Knows the present lag, and whether people have to be told of it."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        #: The lag of the latest events, in seconds.
        self.seconds = 0.0
        self._told_at: dt.datetime | None = None

    def note(self, events: Iterable[PublicEvent], now: dt.datetime) -> bool:
        """Take notice of *events* that were projected just now; return whether people have to be told."""
        times = [at for event in events if (at := event.persisted_at or event.emitted_at) is not None]
        if not times:
            return False
        self.seconds = max(0.0, (now - min(times)).total_seconds())
        if self.seconds <= self._limit_s:
            if self.seconds < OVER_PART * self._limit_s:
                self._told_at = None
            return False
        if self._told_at is not None and (now - self._told_at).total_seconds() < AGAIN_S:
            return False
        self._told_at = now
        return True
