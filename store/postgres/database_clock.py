"""What time it is in the database, without asking: by what it said last, and this machine's own ticking.

Only the time that passes here is used, never this machine's idea of what time it is.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable

from tidewheel.store.columns import moment

#: An answer that took longer says little of when the database's clock was read.
QUICK_S = 0.05
#: What was learned longer ago is replaced, however slow the next answer is: two clocks drift apart.
OLD_S = 10.0


class DatabaseClock:
    """An estimate, which whoever writes by it has the database check. *given* stands in for it, in tests."""

    def __init__(self, given: Callable[[], float] | None) -> None:
        self._given = given
        #: The database's time when this machine's ticking began.
        self._began_us: int | None = None
        self._learned_s = 0.0

    def now(self) -> dt.datetime | None:
        """Return about what the database would say; None if it has not said anything so far."""
        if self._given is not None:
            return dt.datetime.fromtimestamp(self._given(), dt.UTC)
        if self._began_us is None:
            return None
        return moment(self._began_us + time.monotonic_ns() // 1000)

    def learn(self, now_us: int, asked_s: float) -> None:
        """Take in what the database said when it was asked at *asked_s*, by ``time.monotonic``."""
        heard_s = time.monotonic()
        is_needed = self._began_us is None or heard_s - self._learned_s > OLD_S
        if is_needed or heard_s - asked_s < QUICK_S:
            # It was read at some moment in between. Rather too late than too early: what is due by it must
            # not come before its time.
            self._began_us = now_us - round(asked_s * 1_000_000)
            self._learned_s = heard_s
