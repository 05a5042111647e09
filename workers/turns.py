"""Whose turn it is: sessions that have something to do take their turns one after the other.

Sessions that become ready together, as those do whose writes were answered together, take their turns in one
sweep: the guards of workflow code are raised once for all of them, and what they append goes into one
transaction. A sweep is bounded, so that what comes over the network is heard in between.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from tidewheel.replay.loop import MANY_MOVEMENTS
from tidewheel.workers.clock import StoreClock

logger = logging.getLogger("tidewheel.workers")


class Turning(Protocol):
    """Somebody who takes turns."""

    def take_turn(self, now: dt.datetime) -> None:
        """Do what there is to do *now*, as far as that goes without waiting."""


class Turns:
    """The sessions of a worker that wait for their turn; those of one sweep take it at one moment."""

    def __init__(self, clock: StoreClock, flush: Callable[[], None], sweep_max: int) -> None:
        """*flush* begins to write what was submitted until then; *sweep_max* take turns in one sweep."""
        self._clock = clock
        self._sweep_max = sweep_max
        self._flush = flush
        self._ready: deque[Turning] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        #: The next sweep, if it was asked for.
        self._next: asyncio.Handle | None = None

    def add(self, who: Turning) -> None:
        """Let *who* take a turn soon, not from in here."""
        self._ready.append(who)
        if self._next is None:
            self._loop = self._loop or asyncio.get_running_loop()
            self._next = self._loop.call_soon(self.sweep)

    def sweep(self) -> None:
        """Let those who wait take their turns now: nobody else is about to join them."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        ready = self._ready
        if not ready:
            return
        now = self._clock.now()
        with MANY_MOVEMENTS:
            for _ in range(min(self._sweep_max, len(ready))):
                try:
                    ready.popleft().take_turn(now)
                except Exception:
                    logger.exception("a turn failed in a way that it should not")
        self._flush()
        if ready and self._next is None:
            assert self._loop is not None
            self._next = self._loop.call_soon(self.sweep)
