"""The long form for the event pipeline: ``python -m tests.chaos.bus_main --seed N --minutes M --runs R``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.bus_mutants import APPLIED
from tests.chaos.bus_plan import long_bus_plan
from tests.chaos.bus_storm import bus_weather
from tests.chaos.bus_verdict import bus_complaints, bus_shown
from tests.chaos.fleet import Servers
from tests.servers.postgres import PrivatePostgres
from tests.servers.rabbitmq import PrivateRabbit

#: As many connections as all processes may have at a time, those of the dead that Postgres has not missed
#: included.
POSTGRES: dict[str, str | int | bool] = {"max_connections": 200, "synchronous_commit": "on"}


def main() -> int:
    """Do it, print what came of it, and return whether anything is wrong."""
    arguments = _arguments()
    began = time.monotonic()

    def say(line: str) -> None:
        sys.stdout.write(f"[{time.monotonic() - began:6.0f} s] {line}\n")
        sys.stdout.flush()

    plan = long_bus_plan(
        seed=arguments.seed, runs=arguments.runs, minutes=arguments.minutes, outage_s=arguments.outage
    )
    say(f"seed {plan.seed}: {plan.runs} runs over the event bus, {dict(plan.troubles)}")
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="tidewheel-bus-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        sys.stderr.write(f"{folder} has something in it already: name an empty folder, or a new one\n")
        return 2
    logging.basicConfig(filename=folder / "senders.log", format="%(asctime)s %(name)s %(message)s")
    with PrivatePostgres(POSTGRES) as postgres, PrivateRabbit() as rabbit:
        servers = Servers(postgres, rabbit)
        outcome = asyncio.run(bus_weather(plan, servers, folder, say, mutant=arguments.mutant))
    wrong = list(bus_complaints(outcome))
    sys.stdout.write(f"\n{bus_shown(outcome)}\n\n")
    for line in wrong:
        sys.stdout.write(f"WRONG: {line}\n")
    again = f"python -m tests.chaos.bus_main --seed {plan.seed} --runs {plan.runs} --outage {plan.outage_s:g}"
    sys.stdout.write(f"{'FAILED' if wrong else 'PASSED'}; history and logs: {folder}; again: {again}\n")
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.bus_main", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--outage", type=float, default=60.0, help="seconds without a bus, at the end")
    parser.add_argument("--folder", help="where history, what was heard and logs go")
    parser.add_argument("--mutant", choices=sorted(APPLIED), help="break the pipeline: it has to fail")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
