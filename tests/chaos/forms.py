"""How much the tests of this tier do: little in every ``make test``, all of it in ``make chaos``."""

from __future__ import annotations

import os
from typing import TypeVar

import pytest

T = TypeVar("T")

#: Set by ``make chaos``.
LONG = "TIDEWHEEL_CHAOS"
_MARK = "is_in_the_long_form_only"


def is_long() -> bool:
    """Tell whether everything is wanted."""
    return os.environ.get(LONG) == "long"


def either(short: int, long: int) -> int:
    """Return how many of something are wanted."""
    return long if is_long() else short


def long_form(test: T) -> T:
    """Have a test in the long form only: it takes longer than every ``make test`` may."""
    setattr(test, _MARK, True)
    return test


def is_in_form(item: pytest.Item) -> bool:
    """Tell whether a test belongs to the form that is wanted."""
    return is_long() or not getattr(getattr(item, "function", None), _MARK, False)
