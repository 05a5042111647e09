"""The simulation can fail: planted bugs are found within a bounded number of steps."""

from __future__ import annotations

import pytest

from tests.simulation import mutants
from tests.simulation.world import SimulationFailed, simulate

#: Worlds that may be looked at until a mutant is found, and the steps of each storm.
WORLDS_MAX = 40
STORM_STEPS = 5_000


@pytest.mark.parametrize("mutant", list(mutants.MUTANTS), ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: mutants.Mutant) -> None:
    """Somebody who makes this mistake hears of it, with the one line that shows it again."""
    with mutant(), pytest.raises(SimulationFailed, match=r"Again: python -m tests.simulation --seed \d+"):
        _simulate_until_it_fails(mutants.MUTANTS[mutant])


def test_acknowledging_too_early_costs_time_only() -> None:
    """A hint may be lost, and nothing with it, for the store knows what is owed; a command may not."""
    with mutants.acknowledged_first():
        reports = [simulate(seed, STORM_STEPS) for seed in range(3)]

    assert any(report.counts["crash"] for report in reports)


def _simulate_until_it_fails(odds: dict[str, float]) -> None:
    for seed in range(WORLDS_MAX):
        simulate(seed, STORM_STEPS, odds=odds)
