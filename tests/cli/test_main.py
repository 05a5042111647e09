"""The command as a whole: help, usage, start-up, interruption and readers that leave."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tidewheel import __version__
from tidewheel.cli.exit_codes import ExitCode

Run = Callable[..., subprocess.CompletedProcess[str]]
WHERE = ["--store URL", "--broker URL", "--namespace NAME", "--json"]
COMMAND = [sys.executable, "-P", "-m", "tidewheel.cli.main"]


def test_the_version_is_one_line(process: Run) -> None:
    """Scripts ask for the version."""
    ran = process("--version")

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"tidewheel {__version__}\n", "")


@pytest.mark.parametrize(
    ("command", "mentions"),
    [
        ([], ["dev", "up", "worker", "keeper", "run", "journal", "replay", "db", "doctor", "Exit codes"]),
        (["dev"], ["APP", "--dir", "--queue", "--grace", "--log-level", *WHERE, "second", "Exit codes"]),
        (["up"], ["APP", "--queue", "--grace", "--log-level", *WHERE, "Exit codes"]),
        (["worker"], ["APP", "--queue", "--grace", "--log-level", *WHERE, "Exit codes"]),
        (["keeper"], ["--log-level", *WHERE, "Exit codes"]),
        (["run"], ["start", "list", "show", "journal", "watch", "result", "signal", "resolve", "unpark"]),
        (["run", "start"], ["WORKFLOW", "--input", "--idempotency-key", "--wait", "--timeout", *WHERE]),
        (["run", "list"], ["--status", "--workflow", "--limit", "--json", "Exit codes"]),
        (["run", "show"], ["ID", "--all", "--ascii", "--json", "Exit codes"]),
        (["run", "journal"], ["ID", "--json", "Exit codes"]),
        (["run", "watch"], ["ID", "--json", "goes on", "Exit codes"]),
        (["run", "signal"], ["ID", "NAME", "--payload JSON", *WHERE, "Exit codes"]),
        (["run", "result"], ["ID", "--timeout", *WHERE, "goes on", "Exit codes"]),
        (["run", "cancel"], ["ID", "--reason", *WHERE, "Exit codes: 0 asked, or it has ended already"]),
        (["run", "resolve"], ["ID", "PROMISE", "--value JSON", *WHERE, "Exit codes"]),
        (["run", "reject"], ["ID", "PROMISE", "MESSAGE", *WHERE, "Exit codes"]),
        (["run", "unpark"], ["ID", *WHERE, "Exit codes"]),
        (["journal"], ["verify"]),
        (["journal", "verify"], ["[ID]...", "--all", "--file F", "--json", "FORMAT", "Exit codes"]),
        (["replay"], ["APP", "ID", "--file F", "--workflow NAME", "--json", "Exit codes"]),
        (["db"], ["migrate", "status"]),
        (["db", "migrate"], ["--store", "--json", "Exit codes"]),
        (["db", "status"], ["--store", "--json", "Exit codes"]),
        (["doctor"], ["--fix", "--deep", *WHERE, "Exit codes"]),
        (["check"], ["APP", "--strict", "--json", "tidewheel: ignore", "Exit codes"]),
        (["graph"], ["APP", "--file F", "--format", "Mermaid", "Exit codes"]),
    ],
)
def test_help_at_every_level_names_the_options_and_has_examples(
    run: Run, command: list[str], mentions: list[str]
) -> None:
    """Nobody should need the documentation to use a command."""
    ran = run(*command, "--help")

    assert ran.returncode == ExitCode.OK
    assert "Examples:\n    tidewheel " in ran.stdout
    assert [word for word in mentions if word not in ran.stdout] == []


def test_help_imports_nothing_slow(folder: Path) -> None:
    """What only one command needs is imported when that command runs."""
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", *COMMAND[1:], "--help"], capture_output=True, check=True
    )

    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.decode().splitlines()}
    slow = {
        "kombu",
        "pydantic",
        "rich",
        "sqlalchemy",
        "sqlite3",
        "tidewheel.journal.graph",
        "tidewheel.journal.verify",
        "tidewheel.testing",
        "tidewheel.workers.worker",
    }
    assert "typer" in imported
    assert slow & imported == set()


@pytest.mark.parametrize(
    ("arguments", "message", "see"),
    [
        (["fly"], "No such command 'fly'", "tidewheel --help"),
        (["--fly"], "No such option", "tidewheel --help"),
        (["journal", "verify"], "name what to verify: --file F", "tidewheel journal verify --help"),
        (["journal", "verify", "a", "--all"], "name what to verify", "tidewheel journal verify --help"),
        (["replay", "shop.py:app"], "name one journal", "tidewheel replay --help"),
        (["graph", "--file", "x", "--run", "y"], "name one journal", "tidewheel graph --help"),
        (["run", "start", "x", "--timeout", "5"], "--wait", "tidewheel run start --help"),
        (["dev", "x:app", "--dir", ".", "--store", "memory://"], "--dir and --store", "tidewheel dev --help"),
        (["dev", "x:app", "--log-level", "loud"], "'--log-level'", "tidewheel dev --help"),
        (["replay", "--file", "completed.json"], "Missing argument 'APP'", "tidewheel replay --help"),
        (["graph", "--file", "completed.json", "--format", "x"], "'--format'", "tidewheel graph --help"),
    ],
)
def test_wrong_usage_says_what_is_wrong_and_where_to_look(
    run: Run, arguments: list[str], message: str, see: str
) -> None:
    """A wrong command line is exit code 2 and two lines on standard error."""
    ran = run(*arguments)

    first, second = ran.stderr.splitlines()
    assert (ran.returncode, ran.stdout) == (ExitCode.INVALID, "")
    assert first.startswith("error: ")
    assert message in first
    assert second == f"  see `{see}`"


@pytest.mark.parametrize("command", [[], ["run"], ["journal"], ["db"]])
def test_a_group_alone_shows_its_help(run: Run, command: list[str]) -> None:
    """It is no result, so it is on standard error, and nothing was done: exit code 2."""
    alone = run(*command)

    assert (alone.returncode, alone.stdout) == (ExitCode.INVALID, "")
    assert alone.stderr == run(*command, "--help").stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
@pytest.mark.parametrize("arguments", [["run", "list"], ["run", "list", "--json"], ["--version"], ["--help"]])
def test_output_that_cannot_be_written_is_told(shelf: Path, arguments: list[str]) -> None:
    """One message, no traceback, exit code 1."""
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    (line,) = ran.stderr.splitlines()
    assert ran.returncode == ExitCode.FINDING
    assert "standard output cannot be written: No space left on device" in line


def test_wrong_usage_is_json_where_json_is_asked_for(run: Run) -> None:
    """A program that reads the result can read the error too."""
    ran = run("journal", "verify", "--json")

    error = json.loads(ran.stderr)["error"]
    assert ran.returncode == ExitCode.INVALID
    assert error == {
        "type": "UsageError",
        "message": "name what to verify: --file F, the IDs of runs, or --all",
    }


def test_an_interruption_is_quiet(folder: Path, process: Run) -> None:
    """Ctrl-C ends with 130, as shells expect, and without a traceback."""
    source = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nwhile True: pass\n"
    (folder / "slow.py").write_text(source)

    ran = process("check", "slow.py:app")

    assert (ran.returncode, ran.stdout, ran.stderr) == (ExitCode.INTERRUPTED, "", "")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["journal", "verify", "--json", "--file", "-"], ExitCode.FINDING),
        (["graph", "--file", "completed.json"], ExitCode.OK),
        (["replay", "shop.py:app", "--json", "--file", "completed.json"], ExitCode.OK),
        (["--version"], ExitCode.OK),
    ],
)
def test_a_reader_who_leaves_changes_nothing(folder: Path, arguments: list[str], code: ExitCode) -> None:
    """After ``| head`` there is no complaint, and the exit code is what it would have been."""
    pipe = subprocess.PIPE
    with subprocess.Popen([*COMMAND, *arguments], stdin=pipe, stdout=pipe, stderr=pipe) as ran:
        assert ran.stdout is not None
        ran.stdout.close()
        ran.stdout = None
        _out, err = ran.communicate(b"[1]" * 10_000)

    assert (ran.returncode, err) == (code, b"")


def test_output_is_utf8_in_any_locale(folder: Path, process: Run) -> None:
    """JSON is UTF-8 by definition; a locale that cannot write it must not stop the command."""
    journal = '[{"run_seq": 0, "type": "Größe", "data": {}}]'.encode()

    ran = process("journal", "verify", "--file", "-", stdin=journal, PYTHONIOENCODING="ascii", LC_ALL="C")

    assert ran.returncode == ExitCode.FINDING
    assert "Größe" in json.loads(ran.stdout.splitlines()[0])["message"]
