"""When a process that ended is started again. Pure: the time is an argument.

The first time soon, then after pauses that double, until it has lived for a while; and never more often
than a bound per minute, whatever it does.
"""

from __future__ import annotations

from collections import deque
from typing import Final

PAUSE_FIRST_S: Final = 0.2
PAUSE_MAX_S: Final = 10.0
#: Whatever lived this long is well: the next pause is the first one again.
WELL_AFTER_S: Final = 60.0
#: Starts of one child in any minute.
STARTS_PER_MINUTE_MAX: Final = 10
_MINUTE_S: Final = 60.0


class Restarts:
    """The history of one child, as far as the next start depends on it."""

    def __init__(self) -> None:
        self._began: deque[float] = deque(maxlen=STARTS_PER_MINUTE_MAX)
        self._pause_s = PAUSE_FIRST_S

    def began(self, now: float) -> None:
        """It was started."""
        self._began.append(now)

    def pause_s(self, now: float) -> float:
        """It has ended: return how long to wait before it is started again."""
        if self._began and now - self._began[-1] >= WELL_AFTER_S:
            self._pause_s = PAUSE_FIRST_S
        pause_s = self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        if len(self._began) == STARTS_PER_MINUTE_MAX:
            pause_s = max(pause_s, self._began[0] + _MINUTE_S - now)
        return pause_s
