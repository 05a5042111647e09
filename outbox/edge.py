"""Where a relay's pass through the outbox begins: mostly not at the very beginning.

Keys of runs begin with the time, so what is owed is at the end of the index, and before it are the entries of
rows that were told a moment ago, until somebody cleans them up. Most passes therefore begin where the lowest
run was that could be claimed lately.

Rule: a row is never passed over for longer than ``WHOLE_S``. Lower keys do appear later, as when an old run
goes on, a transaction commits late or a lease ends; each pass that begins after that time is a whole one.
"""

from __future__ import annotations

from collections import deque
from typing import Final

#: The longest that no whole pass is begun.
WHOLE_S: Final = 0.2
#: A run that something was claimed of in one of so many whole passes is not below the edge.
REMEMBERED: Final = 10


class Edge:
    """What whole passes have found; times are the caller's, in seconds."""

    def __init__(self) -> None:
        self._lowest: deque[bytes] = deque(maxlen=REMEMBERED)
        self._whole_at = 0.0
        self._is_whole = True

    def begin(self, now_s: float) -> bytes:
        """Return after which key the pass that begins now looks."""
        self._is_whole = now_s >= self._whole_at or not self._lowest
        if self._is_whole:
            self._whole_at = now_s + WHOLE_S
            return b""
        # What is shorter comes before: the run itself is looked at too.
        return min(self._lowest)[:-1]

    def note(self, claimed: list[bytes]) -> None:
        """The first claim of the pass got these runs."""
        if self._is_whole and claimed:
            self._lowest.append(min(claimed))
