"""Timers that are due soon, armed in memory: to the millisecond, without asking the store.

The keeper is the net under them: it fires what nobody fired a little after it was due.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Iterable

from tidewheel.journal import events as ev
from tidewheel.store.append import Fact, Fired
from tidewheel.store.page import NEAR
from tidewheel.store.records import TimerRecord
from tidewheel.workers.clock import StoreClock


class NearTimers:
    """The armed timers of one run, by path."""

    def __init__(self, clock: StoreClock, on_fired: Callable[[Fired], None]) -> None:
        self._clock = clock
        self._on_fired = on_fired
        self._armed: dict[str, asyncio.TimerHandle] = {}

    def arm(self, timers: Iterable[TimerRecord], now: dt.datetime) -> None:
        """Arm those of a run's open *timers* that are near; those that are due are taken."""
        for timer in timers:
            if timer.fire_at > now:
                self._arm(timer.path, timer.fire_at)

    def take_due(
        self, timers: Iterable[TimerRecord], now: dt.datetime, happened: Iterable[Fact]
    ) -> list[Fired]:
        """Fire those of a run's open *timers* whose time has come by the store's clock.

        Those that fired here already are among what *happened*.
        """
        fired = []
        known = {fact.path for fact in happened if isinstance(fact, Fired)}
        for timer in timers:
            if timer.fire_at <= now and timer.path not in known:
                armed = self._armed.pop(timer.path, None)
                if armed is not None:
                    armed.cancel()
                fired.append(Fired(path=timer.path))
        return fired

    def follow(self, events: Iterable[ev.Event]) -> None:
        """Arm and disarm as the committed *events* say."""
        for event in events:
            if isinstance(event, ev.TimerScheduled) and event.fire_at is not None:
                self._arm(event.promise_id, event.fire_at)
            elif isinstance(event, ev.TimerCancelled):
                armed = self._armed.pop(event.promise_id, None)
                if armed is not None:
                    armed.cancel()

    def disarm_all(self) -> None:
        """Leave all of them to the keeper."""
        for armed in self._armed.values():
            armed.cancel()
        self._armed.clear()

    def untie(self) -> None:
        """Nobody is told of what fires any more; all are disarmed."""
        self._on_fired = _tell_nobody

    def _arm(self, path: str, fire_at: dt.datetime) -> None:
        if path in self._armed or fire_at - self._clock.now() > NEAR:
            return
        delay = self._clock.seconds_until(fire_at)
        self._armed[path] = asyncio.get_running_loop().call_later(delay, self._fire, path)

    def _fire(self, path: str) -> None:
        del self._armed[path]
        self._on_fired(Fired(path=path))


def _tell_nobody(_: Fired) -> None:
    """What is disarmed does not fire."""
