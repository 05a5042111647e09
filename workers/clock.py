"""The store's time between two of its answers: all deadlines use the store's clock."""

from __future__ import annotations

import asyncio
import datetime as dt


class StoreClock:
    """Remembers the store's time and adds what has passed since, by the process's own steady clock."""

    def __init__(self) -> None:
        self._told: dt.datetime | None = None
        self._told_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    def tell(self, now: dt.datetime) -> None:
        """The store says that it is *now*."""
        self._told = now
        self._loop = self._loop or asyncio.get_running_loop()
        self._told_at = self._loop.time()

    def now(self) -> dt.datetime:
        """The store's time, as far as is known here."""
        assert self._told is not None, "nobody has asked the store yet"
        assert self._loop is not None
        return self._told + dt.timedelta(seconds=self._loop.time() - self._told_at)

    def seconds_until(self, moment: dt.datetime) -> float:
        """How long until *moment*; 0 if it has passed."""
        return max(0.0, (moment - self.now()).total_seconds())
