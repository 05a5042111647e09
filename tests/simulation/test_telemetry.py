"""Telemetry in worlds that fall apart: each turn and attempt is told of once, and telling changes nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.world import simulate
from tests.unit.telemetry.recording import Recording, attributes, span_id
from tidewheel.telemetry import names, switch

STORM_STEPS = 5_000


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_told_of_twice_whatever_fails(seed: int) -> None:
    """Crashes, lost replies, messages that come twice, take-overs: an attempt has one span, as has a turn."""
    silent = simulate(seed, STORM_STEPS)
    recording = Recording()
    switch.turn_on(recording.recorder)
    try:
        told = simulate(seed, STORM_STEPS)
    finally:
        switch.turn_off()

    spans = recording.spans()
    attempts = Counter(
        (attributes(span)[names.RUN_ID], attributes(span)[names.STEP], attributes(span)[names.ATTEMPT])
        for span in spans
        if span.name.startswith("task ")
    )
    assert [one for one, count in attempts.items() if count > 1] == []
    assert max(Counter(map(span_id, spans)).values()) == 1
    # Bodies count themselves, but for closures.
    counted = [span for span in spans if span.name.startswith("task ") and span.name != "task lambda"]
    assert 0 < len(counted) <= told.counts["bodies"]
    assert (told.steps, told.counts) == (silent.steps, silent.counts)
