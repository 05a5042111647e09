"""Durations: users write seconds or a ``timedelta``, journals have seconds."""

from __future__ import annotations

import datetime as dt
import math
from typing import TypeAlias

from tidewheel.journal.errors import InvalidRequest
from tidewheel.replay.execution import DELAY_MAX

Duration: TypeAlias = float | dt.timedelta


def seconds(duration: Duration, what: str) -> float:
    """Return *duration* in seconds, refusing what is not a length of time."""
    value = duration.total_seconds() if isinstance(duration, dt.timedelta) else duration
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        message = f"{what}: {duration!r} is not a duration; pass seconds or a timedelta"
        raise InvalidRequest(message)
    if math.isnan(value) or abs(value) > DELAY_MAX:
        message = f"{what}: {duration!r} is not a usable duration; pass at most a hundred years in seconds"
        raise InvalidRequest(message)
    return float(value)


def positive_seconds(duration: Duration | None, what: str) -> float | None:
    """Return *duration* in seconds, which must be more than nothing; None stays None."""
    if duration is None:
        return None
    value = seconds(duration, what)
    if value <= 0:
        message = f"{what} must be more than 0 seconds, not {duration!r}"
        raise InvalidRequest(message)
    return value
