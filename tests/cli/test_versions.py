"""Runs that wait for another version of their code: what people see, and what they do about it."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.processes import Service, until
from tidewheel.cli.exit_codes import ExitCode

Run = Callable[..., subprocess.CompletedProcess[str]]
Serve = Callable[..., Service]

APP = """
from tidewheel import App, Context

app = App("press")


@app.workflow({options})
async def prints(ctx: Context) -> str:
    await ctx.signal("go")
    return {answer!r}
"""


@pytest.mark.parametrize(
    ("options", "needed", "there"),
    [
        (('version="1"', 'version="2"'), "the run needs version '1' of 'prints'", "version '2' ("),
        (('pin="digest"', 'pin="digest"'), "the run needs the code ", "code "),
    ],
)
def test_a_run_that_no_worker_fits_is_shown_until_one_does(
    run: Run, serve: Serve, folder: Path, options: tuple[str, str], needed: str, there: str
) -> None:
    """``run list``, ``run show`` and ``doctor`` say what it needs, and which workers there are."""
    old, new = options
    (folder / "old.py").write_text(APP.format(options=old, answer="old"))
    (folder / "new.py").write_text(APP.format(options=new, answer="new"))
    first = serve("up", "old.py:app")
    first.wait_for(" ready")
    run("run", "start", "prints", "--run-id", "p-1")
    first.wait_for("run p-1 (prints) started")
    first.send(signal.SIGTERM)
    assert first.exit_code() == ExitCode.OK
    second = serve("up", "new.py:app")
    second.wait_for(" ready")
    run("run", "signal", "p-1", "go")
    second.wait_for("run p-1 is parked (needs_version)")

    listed = run("run", "list", "--parked")
    (row,) = json.loads(run("run", "list", "--json").stdout)
    shown = run("run", "show", "p-1")
    doctor = run("doctor")
    third = serve("worker", "old.py:app")
    until(lambda: json.loads(run("run", "list", "--json").stdout)[0]["status"] == "COMPLETED")

    assert "parked (needs_version): the run needs" in listed.stdout
    assert (row["parked"], row["parked_reason"].startswith(needed)) == ("needs_version", True)
    assert row["version"] == ("1" if "version" in old else "")
    assert f"parked (needs_version): {needed}" in shown.stdout
    assert f"running workers have {there}" in shown.stdout
    assert f"is parked (needs_version): {needed}" in doctor.stdout
    assert f"running workers have {there}" in doctor.stdout
    assert run("run", "result", "p-1").stdout == '"old"\n'
    assert "run p-1 (prints) completed" in third.text
