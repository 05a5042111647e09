"""How much the tests of this tier do: little in every ``make test``, all of it in ``make chaos``."""

from __future__ import annotations

import os

#: Set by ``make chaos``.
LONG = "TIDEWHEEL_CHAOS"


def is_long() -> bool:
    """Tell whether everything is wanted."""
    return os.environ.get(LONG) == "long"


def either(short: int, long: int) -> int:
    """Return how many of something are wanted."""
    return long if is_long() else short
