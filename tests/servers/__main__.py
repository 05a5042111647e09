"""``python -m tests.servers run -- COMMAND``: run a command with private Postgres and RabbitMQ servers."""

from __future__ import annotations

import argparse
import sys

from tests.servers.running import run

_SERVERS = ("postgres", "rabbitmq")


def main() -> int:
    """Do what the arguments say, and return an exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    running = verbs.add_parser("run", help="run a command with servers")
    running.add_argument("--postgres", action="store_true", help="Postgres, and RabbitMQ only if asked for")
    running.add_argument("--rabbitmq", action="store_true", help="RabbitMQ, and Postgres only if asked for")
    running.add_argument(
        "command", nargs="+", metavar="COMMAND", help="the command and its arguments, after --"
    )
    asked = parser.parse_args()
    wanted = [name for name in _SERVERS if getattr(asked, name)]
    return run(asked.command, wanted or _SERVERS)


if __name__ == "__main__":
    sys.exit(main())
