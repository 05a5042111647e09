"""Worlds that fall apart and come to rest again: nothing may be lost, repeated or changed on the way.

A step is one handle run by the simulated loop; see ``loop``. Longer: ``python -m tests.simulation``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.world import simulate

#: Ten worlds of ten thousand steps in the storm, and what the calm takes.
SEEDS = range(10)
STORM_STEPS = 10_000

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_run_ends_as_it_would_have_without_the_faults(seed: int) -> None:
    """Whatever fails, runs are safe at every append, and end once the faults do."""
    report = simulate(seed, STORM_STEPS)

    assert report.steps >= STORM_STEPS
    assert report.counts["bodies"] > 0
    assert report.runs >= report.errands > 0
    # About half of the runs are started by messages, and many of these with their first moves.
    assert report.counts["first moves committed"] > 0


@pytest.mark.parametrize("seed", [3, 5, 77])
def test_one_seed_gives_one_trace(seed: int) -> None:
    """A failure can be looked at again: the same seed takes the same steps, also where workers stop."""
    first, second = simulate(seed, 3_000), simulate(seed, 3_000)

    assert first == second


def test_one_seed_gives_one_trace_in_every_process() -> None:
    """Neither the hash seed nor what the process did before changes the trace."""
    here = simulate(78, 3_000)

    for hash_seed in ("0", "12345"):
        shown = _run("--seed", "78", "--steps", "3000", hash_seed=hash_seed)
        assert re.findall(r"trace (\w+)", shown) == [here.trace]


def test_other_seeds_give_other_traces() -> None:
    """A seed decides everything."""
    assert len({simulate(seed, 500).trace for seed in (1, 2, 3)}) == 3


def _run(*arguments: str, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout
