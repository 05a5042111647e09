"""``tidewheel graph``: a recorded run as text that draws it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tidewheel.cli.exit_codes import ExitCode
from tidewheel.journal import events as ev
from tidewheel.journal.graph import mermaid

Run = Callable[..., subprocess.CompletedProcess[str]]
Recorded = dict[str, list[ev.Entry]]


def test_the_command_prints_the_chart(process: Run, recorded: Recorded) -> None:
    """And nothing else, so that it can be written to a file."""
    ran = process("graph", "--file", "completed.json", "--format", "mermaid")

    assert (ran.returncode, ran.stdout, ran.stderr) == (ExitCode.OK, mermaid(recorded["completed"]), "")


def test_json_holds_the_chart_as_text(run: Run, recorded: Recorded) -> None:
    """One line, for programs."""
    ran = run("graph", "--file", "failed.json", "--json")

    assert json.loads(ran.stdout) == {"format": "mermaid", "graph": mermaid(recorded["failed"])}


def test_an_app_that_is_named_must_have_the_workflow(run: Run, folder: Path) -> None:
    """Whoever names the app expects the run to be one of its runs."""
    (folder / "other.py").write_text("from tidewheel import App\napp = App('other')\n")

    right = run("graph", "shop.py:app", "--file", "completed.json")
    wrong = run("graph", "other.py:app", "--file", "completed.json")

    assert right.returncode == ExitCode.OK
    assert (wrong.returncode, wrong.stdout) == (ExitCode.NOT_FOUND, "")
    assert "app 'other' has no workflow 'order'" in wrong.stderr


@pytest.mark.parametrize(
    ("file", "stdin", "code"),
    [("-", b"{", ExitCode.INVALID), ("-", b"[]", ExitCode.INVALID), ("none.json", b"", ExitCode.NOT_FOUND)],
)
def test_without_a_journal_there_is_no_chart(run: Run, file: str, stdin: bytes, code: ExitCode) -> None:
    """As for every command that reads one."""
    ran = run("graph", "--file", file, stdin=stdin)

    assert (ran.returncode, ran.stdout) == (code, "")
    assert ran.stderr.startswith("error: ")
