"""Pauses that grow, and differ: what failed together is not tried again together."""

from __future__ import annotations

import random


def pause_s(failures: int, *, first_s: float, most_s: float, chance: random.Random) -> float:
    """Return how long to wait after so many failures in a row: twice as long each time, up to *most_s*.

    Between a half and the whole of that, as *chance* has it.
    """
    assert failures >= 1
    whole_s = min(first_s * 2.0 ** min(failures - 1, 32), most_s)
    return whole_s * (0.5 + chance.random() / 2)
