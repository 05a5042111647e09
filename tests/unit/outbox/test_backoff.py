"""Pauses grow, are bounded, and differ."""

from __future__ import annotations

import random

import pytest

from tidewheel.outbox.backoff import pause_s


@pytest.mark.parametrize(
    ("failures", "whole_s"), [(1, 1.0), (2, 2.0), (3, 4.0), (9, 256.0), (10, 300.0), (5_000, 300.0)]
)
def test_a_pause_is_twice_as_long_each_time_up_to_a_bound(failures: int, whole_s: float) -> None:
    """Between a half and the whole, whatever chance says."""
    chance = random.Random(7)
    pauses = [pause_s(failures, first_s=1.0, most_s=300.0, chance=chance) for _ in range(200)]
    assert all(whole_s / 2 <= pause <= whole_s for pause in pauses)
    assert len(set(pauses)) > 190
