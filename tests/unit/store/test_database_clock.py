"""What time it is in the database, reckoned here."""

from __future__ import annotations

import datetime as dt
import time

import pytest

from tidewheel.store.columns import micros
from tidewheel.store.postgres import database_clock
from tidewheel.store.postgres.database_clock import DatabaseClock

THEN = dt.datetime(2031, 5, 1, 12, 0, tzinfo=dt.UTC)


class Ticking:
    """A machine's ticking that goes on when it is told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        """Return the seconds."""
        return self.now_s

    def monotonic_ns(self) -> int:
        """Return the same in nanoseconds."""
        return round(self.now_s * 1e9)


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> Ticking:
    """The ticking, instead of this machine's."""
    ticking = Ticking()
    monkeypatch.setattr(database_clock, "time", ticking)
    return ticking


def told(clock: DatabaseClock, ticking: Ticking, now: dt.datetime, took_s: float) -> None:
    """Let the database say *now* in the middle of an exchange of so long."""
    asked_s = ticking.now_s
    ticking.now_s += took_s
    clock.learn(micros(now), asked_s)


def test_nothing_is_known_before_the_database_said_something(ticking: Ticking) -> None:
    """This machine's own idea of the time is not used."""
    assert DatabaseClock(None).now() is None


def test_time_passes_as_this_machine_ticks(ticking: Ticking) -> None:
    """The database said it at the beginning of the exchange, or later: what is reckoned is not too early."""
    clock = DatabaseClock(None)
    told(clock, ticking, THEN, 0.02)
    ticking.now_s += 5.0

    assert clock.now() == THEN + dt.timedelta(seconds=5.02)


def test_a_slow_answer_does_not_replace_a_quick_one_until_that_is_old(ticking: Ticking) -> None:
    """It may have been said at its beginning or at its end."""
    clock = DatabaseClock(None)
    told(clock, ticking, THEN, 0.0)
    told(clock, ticking, THEN + dt.timedelta(seconds=9), 1.0)
    kept = clock.now()
    ticking.now_s += 20.0
    told(clock, ticking, THEN + dt.timedelta(seconds=9), 1.0)

    assert kept == THEN + dt.timedelta(seconds=1)
    assert clock.now() == THEN + dt.timedelta(seconds=10)


def test_a_clock_that_is_given_is_all_there_is() -> None:
    """In tests time is what the test says."""
    clock = DatabaseClock(THEN.timestamp)
    clock.learn(0, time.monotonic())

    assert clock.now() == THEN
