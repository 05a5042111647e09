"""Measures Tidewheel and its peers in one run, on the same servers: ``python -m benchmarks --help``."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.environments import FOLDER, ROOT, NotToBeHad, python_of, say
from benchmarks.report import document, table, verdicts
from benchmarks.rounds import Bench
from benchmarks.systems import SYSTEMS, Servers
from benchmarks.workload import known
from tests.servers.postgres import PrivatePostgres
from tests.servers.rabbitmq import PrivateRabbit

#: As Postgres comes, but for what has nothing to do with durability.
POSTGRES: dict[str, str | int | bool] = {"fsync": "on", "synchronous_commit": "on", "max_wal_size": "1GB"}


def main() -> int:
    """Measure, print, write and draw."""
    arguments = _arguments()
    workloads = [
        one
        for one in known()
        if (not arguments.only and not (arguments.quick and one.full_only)) or one.name in arguments.only
    ]
    rounds = arguments.rounds or (1 if arguments.quick else 5)
    bench = Bench(workloads, arguments.systems or list(SYSTEMS), rounds, arguments.quick, say)
    began = time.monotonic()
    disk = FOLDER / "servers"
    disk.mkdir(parents=True, exist_ok=True)
    disk.chmod(0o755)
    with PrivatePostgres(POSTGRES, parent=disk) as postgres, PrivateRabbit(parent=disk) as rabbit:
        bench.run(Servers(postgres, rabbit))
    for line in table(bench):
        print(line)
    print()
    for text, met in verdicts(bench):
        print(f"{'met   ' if met else 'MISSED'}  {text}")
    if arguments.json:
        arguments.json.write_text(
            json.dumps(document(bench, time.monotonic() - began), indent=1) + "\n", "utf-8"
        )
        say(f"wrote {arguments.json}")
        if arguments.chart:
            _draw(arguments.json, arguments.chart)
    return 1 if any(series.failures for series in bench.series.values()) else 0


#: As ``chart_program`` says it; it runs where there is matplotlib, and cannot be imported here.
_NOTHING_TO_DRAW = 3


def _draw(figures: Path, chart: Path) -> None:
    try:
        python = python_of("chart")
    except NotToBeHad as error:
        say(f"no chart is drawn: {error}")
        return
    program = [
        python,
        "-m",
        "benchmarks.programs.chart_program",
        str(figures.absolute()),
        str(chart.absolute()),
    ]
    ended = subprocess.run(program, cwd=ROOT, check=False).returncode  # noqa: S603 - our own program
    if ended == _NOTHING_TO_DRAW:
        say("no chart is drawn: nothing was measured that is on it")
    elif ended:
        say(f"no chart is drawn: its program ended with {ended}")
    else:
        say(f"drew {chart}.svg and {chart}.png")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [workload.name for workload in known()]
    parser.add_argument("--quick", action="store_true", help="one round of small sizes: a few minutes")
    parser.add_argument("--only", nargs="+", default=[], choices=names, metavar="W", help=", ".join(names))
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), metavar="S", help=", ".join(SYSTEMS))
    parser.add_argument("--rounds", type=int, help="how often each is measured (5; 1 if quick)")
    parser.add_argument("--json", type=Path, default=FOLDER / "results.json", help="where all figures go")
    parser.add_argument(
        "--chart", type=Path, default=FOLDER / "chart", help="where the chart goes, no suffix"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
