"""``python -m tests.simulation``: run simulated worlds until the steps are spent, or one seed fails."""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.simulation.world import LINES_SHOWN, Report, SimulationFailed, simulate

#: The steps of one world, unless one seed is asked for.
WORLD_STEPS = 20_000


def main() -> int:
    """Run what the arguments ask for; 1 if a world failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one world, and print its trace's hash")
    parser.add_argument("--all", action="store_true", help="with --seed: show the whole trace of a failure")
    parser.add_argument("--first-seed", type=int, help="run worlds with this seed and the next ones")
    parser.add_argument("--steps", type=int, default=WORLD_STEPS, help="steps in the storm, of all worlds")
    parser.add_argument("--world-steps", type=int, default=WORLD_STEPS, help="steps of each world's storm")
    parser.add_argument("--jobs", type=int, default=1, help="processes to use")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _show(_attempt((arguments.seed, arguments.steps, None if arguments.all else LINES_SHOWN)))
    first = secrets.randbelow(1 << 31) if arguments.first_seed is None else arguments.first_seed
    worlds = max(1, arguments.steps // arguments.world_steps)
    tasks = [(first + place, arguments.world_steps, LINES_SHOWN) for place in range(worlds)]
    return _run_all(tasks, arguments.jobs)


def _run_all(tasks: Sequence[tuple[int, int, int | None]], jobs: int) -> int:
    began, steps, counts, failed = time.monotonic(), 0, Counter[str](), 0
    # A fresh process for each world: what was simulated is never collected.
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs, maxtasksperchild=1) as pool:
        for done, outcome in enumerate(pool.imap_unordered(_attempt, tasks), start=1):
            if isinstance(outcome, str):
                failed += _show(outcome)
                continue
            steps += outcome.steps
            counts += outcome.counts
            if done % 10 == 0 or done == len(tasks):
                rate = steps / (time.monotonic() - began)
                _say(f"{done} worlds, {failed} failed, {steps:,} steps, {rate:,.0f} steps/s")
    _say(", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())))
    return int(failed > 0)


def _attempt(task: tuple[int, int, int | None]) -> Report | str:
    seed, steps, lines_shown = task
    try:
        return simulate(seed, steps, lines_shown=lines_shown)
    except SimulationFailed as failed:
        return str(failed)


def _show(outcome: Report | str) -> int:
    if isinstance(outcome, str):
        _say(outcome)
        return 1
    _say(f"seed {outcome.seed}: {outcome.steps:,} steps, {outcome.virtual_s:,.0f} s, trace {outcome.trace}")
    _say(", ".join(f"{name} {count:,}" for name, count in sorted(outcome.counts.items())))
    return 0


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - this module is a command


if __name__ == "__main__":
    sys.exit(main())
