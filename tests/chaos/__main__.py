"""The long form: ``python -m tests.chaos --seed N --minutes M --runs R``."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.fleet import Servers
from tests.chaos.plan import long_plan
from tests.chaos.storm import weather
from tests.chaos.verdict import complaints, shown
from tests.servers.postgres import PrivatePostgres
from tests.servers.rabbitmq import PrivateRabbit

#: What the servers need to be fast enough; a process that is killed loses nothing that it wrote.
POSTGRES: dict[str, str | int | bool] = {"max_connections": 100, "synchronous_commit": "on"}


def main() -> int:
    """Do it, print what came of it, and return whether anything is wrong."""
    arguments = _arguments()
    began = time.monotonic()

    def say(line: str) -> None:
        sys.stdout.write(f"[{time.monotonic() - began:6.0f} s] {line}\n")
        sys.stdout.flush()

    plan = long_plan(seed=arguments.seed, runs=arguments.runs, minutes=arguments.minutes)
    say(f"seed {plan.seed}: {plan.runs} runs, {plan.kills} kills of workers, {dict(plan.troubles)}")
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="tidewheel-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    with PrivatePostgres(POSTGRES) as postgres, PrivateRabbit() as rabbit:
        outcome = asyncio.run(weather(plan, Servers(postgres, rabbit), folder, say))
    wrong = list(complaints(outcome))
    sys.stdout.write(f"\n{shown(outcome)}\n\n")
    for line in wrong:
        sys.stdout.write(f"WRONG: {line}\n")
    again = f"python -m tests.chaos --seed {plan.seed} --runs {plan.runs}"
    sys.stdout.write(f"{'FAILED' if wrong else 'PASSED'}; history and logs: {folder}; again: {again}\n")
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--folder", help="where history, effects and logs go")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
