"""``journal verify``, ``replay`` and ``graph`` on runs of the store: the same answers as for files."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.cli.shelves import CANCELLED, COMPLETED, FAILED, PARKED, WAITING, change
from tidewheel.cli.exit_codes import ExitCode

Run = Callable[..., subprocess.CompletedProcess[str]]

DAMAGE = (
    "UPDATE tidewheel_journal SET data = x'00' WHERE first_seq = 1 AND run_key = "
    "(SELECT run_key FROM tidewheel_runs WHERE run_id = ?)"
)


def test_runs_of_the_store_are_verified(run: Run, shelf: Path) -> None:
    """Some by their ids, or all of them; valid ones print nothing but a summary."""
    some = run("journal", "verify", COMPLETED, FAILED)
    every = run("journal", "verify", "--all")
    quiet = run("journal", "verify", "--all", "--json")

    assert (some.returncode, some.stdout) == (ExitCode.OK, "")
    assert some.stderr.startswith("2 runs, ")
    assert (every.returncode, every.stdout) == (ExitCode.OK, "")
    assert every.stderr.startswith("5 runs, ")
    assert every.stderr.endswith(" events, valid\n")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (ExitCode.OK, "", "")


def test_a_breach_in_the_store_names_its_run(run: Run, shelf: Path) -> None:
    """One line of JSON per breach; what cannot be read breaks FORMAT, and the others are verified still."""
    change(DAMAGE, COMPLETED)

    ran = run("journal", "verify", "--all")

    (breach,) = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.returncode == ExitCode.FINDING
    assert (breach["run_id"], breach["rule"], breach["run_seq"]) == (COMPLETED, "FORMAT", 1)
    assert ran.stderr.startswith("5 runs, ")
    assert ran.stderr.endswith(", 1 breach\n")


def test_a_rule_that_is_broken_in_the_store_is_found(run: Run, shelf: Path) -> None:
    """The same rules as for files."""
    change(
        "DELETE FROM tidewheel_journal WHERE first_seq = 1 AND run_key = "
        "(SELECT run_key FROM tidewheel_runs WHERE run_id = ?)",
        COMPLETED,
    )

    ran = run("journal", "verify", COMPLETED, "--json")

    rules = {json.loads(line)["rule"] for line in ran.stdout.splitlines()}
    assert ran.returncode == ExitCode.FINDING
    assert rules & {"S-1", "FORMAT"}


def test_a_run_that_is_not_there_cannot_be_verified(run: Run, shelf: Path) -> None:
    """Whether it is valid is not known."""
    ran = run("journal", "verify", "nope")

    assert (ran.returncode, ran.stdout) == (ExitCode.NOT_FOUND, "")


def test_a_run_of_the_store_is_replayed(run: Run, shelf: Path) -> None:
    """The report is the one a file gives."""
    done = run("replay", "depot.py:app", COMPLETED)
    waiting = run("replay", "depot.py:app", WAITING, "--json")
    stopped = run("replay", "depot.py:app", CANCELLED, "--json")
    foreign = run("replay", "depot.py:app", PARKED)
    missing = run("replay", "depot.py:app", "nope")

    assert done.returncode == ExitCode.OK
    assert json.loads(done.stdout)["outcome"] == "completed"
    assert done.stderr == f"{COMPLETED}: total completed\n"
    assert json.loads(waiting.stdout)["outcome"] == "blocked"
    assert (stopped.returncode, json.loads(stopped.stdout)["outcome"]) == (ExitCode.FINDING, "cancelled")
    assert foreign.returncode == ExitCode.NOT_FOUND
    assert missing.returncode == ExitCode.NOT_FOUND


def test_a_run_of_the_store_is_drawn(run: Run, shelf: Path) -> None:
    """As a chart, whether or not an app is named."""
    alone = run("graph", "--run", COMPLETED)
    checked = run("graph", "depot.py:app", "--run", COMPLETED)

    assert alone.returncode == checked.returncode == ExitCode.OK
    assert alone.stdout.startswith("flowchart TD")
    assert checked.stdout == alone.stdout
