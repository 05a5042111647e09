"""``tidewheel replay``: a report for every way a run can go, and a clear no where there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidewheel.cli.exit_codes import ExitCode

Run = Callable[..., subprocess.CompletedProcess[str]]


def journal(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return a recorded journal as plain data."""
    loaded: list[dict[str, Any]] = json.loads((folder / f"{name}.json").read_bytes())
    return loaded


def write(folder: Path, entries: list[dict[str, Any]]) -> str:
    """Write a journal and return the name of its file."""
    (folder / "changed.json").write_text(json.dumps(entries))
    return "changed.json"


@pytest.mark.parametrize(
    ("name", "code", "report", "says"),
    [
        ("completed", 0, {"outcome": "completed", "result": 7}, "order completed"),
        ("answered", 0, {"outcome": "completed", "result": "yes"}, "approval completed"),
        ("blocked", 0, {"outcome": "blocked", "waiting_on": ["0", "1"]}, "blocked, waiting on 0, 1"),
        ("continued", 0, {"outcome": "continued"}, "counter continued"),
        ("counted", 0, {"outcome": "completed", "result": 0}, "counter completed"),
        ("failed", 1, {"outcome": "failed"}, "broken failed: OSError: ship: no van"),
        ("cancelled", 1, {"outcome": "cancelled"}, "approval cancelled"),
    ],
)
def test_the_report_says_how_the_run_stands(
    run: Run, name: str, code: int, report: dict[str, Any], says: str
) -> None:
    """The report is JSON on standard output, with a line for people beside it."""
    ran = run("replay", "shop.py:app", "--file", f"{name}.json")

    printed = json.loads(ran.stdout)
    assert ran.returncode == code
    assert {key: printed[key] for key in report} == report
    assert printed["same_code"] is True
    assert ran.stderr.startswith(f"{name}.json: ")
    assert says in ran.stderr


def test_code_that_no_longer_fits_is_a_violation(process: Run, folder: Path) -> None:
    """The report names the command, what the journal has and what the code asked for."""
    source = (folder / "shop.py").read_text()
    (folder / "shop.py").write_text(source.replace("ctx.invoke(charge, amount)", "ctx.invoke(ship, 'x')"))

    ran = process("replay", "shop:app", "--file", "completed.json")

    report = json.loads(ran.stdout)
    assert ran.returncode == ExitCode.FINDING
    assert report["outcome"] == "violation"
    assert report["violation"] == {
        "command": "Task(0)",
        "field": "function_name",
        "journal": "charge",
        "code": "ship",
    }
    assert "order does not fit its journal: Task(0): journal has 'charge'" in ran.stderr
    assert "the code has changed" in ran.stderr


def test_json_is_one_line_and_nothing_else(process: Run) -> None:
    """A program reads the report and nothing meant for people."""
    ran = process("replay", "shop.py:app", "--file", "blocked.json", "--json")

    assert ran.returncode == ExitCode.OK
    assert ran.stdout.count("\n") == 1
    assert json.loads(ran.stdout)["outcome"] == "blocked"
    assert ran.stderr == ""


def test_on_a_terminal_the_report_is_indented(folder: Path) -> None:
    """People read one field per line."""
    mine, theirs = os.openpty()
    command = [
        sys.executable,
        "-m",
        "tidewheel.cli.main",
        "replay",
        "shop.py:app",
        "--file",
        "completed.json",
    ]

    subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, check=True)
    os.close(theirs)

    assert os.read(mine, 1000).decode().splitlines()[:2] == ["{", '  "outcome": "completed",']
    os.close(mine)


def test_the_journal_can_come_from_standard_input(run: Run, folder: Path) -> None:
    """``-`` is standard input here too."""
    ran = run("replay", "shop.py:app", "--file", "-", stdin=(folder / "completed.json").read_bytes())

    assert ran.returncode == ExitCode.OK
    assert ran.stderr == "standard input: order completed\n"


def test_what_the_code_prints_stays_out_of_the_report(run: Run, folder: Path) -> None:
    """Standard output belongs to the report, whatever the module or the workflow prints."""
    source = (folder / "shop.py").read_text()
    chatty = source.replace("    paid = ", "    print('in the workflow')\n    paid = ")
    (folder / "chatty.py").write_text(chatty + "\nprint('in the module')\n")

    ran = run("replay", "chatty.py:app", "--file", "completed.json")

    assert json.loads(ran.stdout)["outcome"] == "completed"
    assert "in the module\n" in ran.stderr
    assert "in the workflow\n" in ran.stderr


def test_a_journal_without_a_name_needs_one(run: Run, folder: Path) -> None:
    """Where the app has several workflows, --workflow says which."""
    entries = journal(folder, "completed")
    del entries[0]["data"]["workflow"]
    file = write(folder, entries)

    unnamed = run("replay", "shop.py:app", "--file", file)
    named = run("replay", "shop.py:app", "--file", file, "--workflow", "order")

    assert unnamed.returncode == ExitCode.INVALID
    assert "--workflow; app 'shop' has: approval, broken, counter, order, receipt" in unnamed.stderr
    assert named.returncode == ExitCode.OK


def test_the_only_workflow_of_an_app_needs_no_name(run: Run, folder: Path) -> None:
    """There is nothing to choose."""
    only = "from tidewheel import App\nfrom shop import counter\napp = App('x')\napp.workflow(counter)\n"
    (folder / "only.py").write_text(only)
    entries = journal(folder, "continued")
    del entries[0]["data"]["workflow"]

    ran = run("replay", "only.py:app", "--file", write(folder, entries))

    assert ran.returncode == ExitCode.OK
    assert json.loads(ran.stdout)["outcome"] == "continued"


def test_a_journal_of_another_workflow_is_invalid_input(run: Run) -> None:
    """Replaying it with other code would only find nonsense."""
    ran = run("replay", "shop.py:app", "--file", "completed.json", "--workflow", "broken")

    assert (ran.returncode, ran.stdout) == (ExitCode.INVALID, "")
    assert ran.stderr == "error: the journal is of workflow 'order', not 'broken'\n"


@pytest.mark.parametrize("name", ["missing", ""])
def test_a_workflow_that_the_app_does_not_have_is_not_found(run: Run, folder: Path, name: str) -> None:
    """Whether the journal names it or the command line does; the answer lists those there are."""
    entries = journal(folder, "completed")
    entries[0]["data"]["workflow"] = "gone"
    flags = ["--workflow", name] if name else []

    ran = run("replay", "shop.py:app", "--file", write(folder, entries), *flags)

    assert ran.returncode == ExitCode.NOT_FOUND
    assert ran.stderr == (
        f"error: app 'shop' has no workflow '{name or 'gone'}'\n"
        "  it has: approval, broken, counter, order, receipt\n"
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff", "standard input is not a journal: the journal cannot be read as JSON"),
        (b'[{"run_seq": 0, "type": "Nonsense"}]', "type 'Nonsense' is not an event this version knows"),
        (b"[]", "the journal is empty"),
        (b'[{"run_seq": 0, "type": "RunPaused"}]', "a journal begins with ExecutionStarted"),
    ],
)
def test_what_is_no_journal_is_invalid_input(run: Run, data: bytes, message: str) -> None:
    """There is nothing to replay, which is not a finding about the code."""
    plain = run("replay", "shop.py:app", "--file", "-", stdin=data)
    as_json = run("replay", "shop.py:app", "--file", "-", "--json", stdin=data)

    assert (plain.returncode, plain.stdout) == (ExitCode.INVALID, "")
    assert plain.stderr.startswith("error: ")
    assert message in plain.stderr
    assert message in json.loads(as_json.stderr)["error"]["message"]


def test_a_journal_that_breaks_rules_is_replayed_with_a_warning(run: Run, folder: Path) -> None:
    """A report on a broken journal is better than none, as long as it says so."""
    entries = journal(folder, "blocked")
    entries[-1]["run_seq"] += 1
    file = write(folder, entries)

    plain = run("replay", "shop.py:app", "--file", file)
    as_json = run("replay", "shop.py:app", "--file", file, "--json")

    assert json.loads(plain.stdout)["outcome"] == "blocked"
    assert plain.stderr.startswith("warning: the journal breaks S-1")
    assert "S-1" in json.loads(as_json.stderr)["warning"]["message"]


def test_a_missing_file_is_not_found(run: Run) -> None:
    """As for every command."""
    assert run("replay", "shop.py:app", "--file", "none.json").returncode == ExitCode.NOT_FOUND
