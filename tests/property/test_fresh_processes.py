"""Replay agrees across processes with other heap layouts and other hash seeds."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROGRAMS = 120


def run_fresh(*arguments: object, hash_seed: int, given: str = "") -> str:
    """Run the module in a new interpreter and return what it prints."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    finished = subprocess.run(
        [sys.executable, "-m", "tests.property.fresh_process", *map(str, arguments)],
        input=given,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=240,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def recorded() -> str:
    """Journals that one process recorded."""
    return run_fresh("record", 0, PROGRAMS, 0, hash_seed=0)


@pytest.mark.parametrize(("hash_seed", "junk"), [(1, 10_000), (2, 77_777), (12_345, 1_234)])
def test_a_fresh_process_writes_the_same_journals(recorded: str, hash_seed: int, junk: int) -> None:
    """Same programs, same arrivals: the journals do not depend on where objects lie or how strings hash."""
    again = run_fresh("record", 0, PROGRAMS, junk, hash_seed=hash_seed)

    assert again == recorded


def test_a_fresh_process_proves_the_journals_of_another(recorded: str) -> None:
    """Cut and replayed elsewhere, the code asks for exactly what the journal says."""
    differences = run_fresh("prove", 55_555, hash_seed=99, given=recorded)

    assert differences == ""


def test_iterating_ones_own_set_never_swaps_results() -> None:
    """A set of strings iterates differently elsewhere: a violation or the same results, nothing else."""
    journals = run_fresh("names", hash_seed=1)
    outcomes = set()
    for hash_seed in range(1, 7):
        for line in run_fresh("judge", hash_seed=hash_seed, given=journals).splitlines():
            outcome, result = json.loads(line)
            outcomes.add(outcome)
            assert outcome in ("completed", "blocked", "violation")
            if outcome == "completed":
                assert all(answer == f"hello {name}" for name, answer in result.items())

    assert outcomes == {"completed", "blocked", "violation"}
