"""``tidewheel check``: what would not replay, for people and for programs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tidewheel.cli.exit_codes import ExitCode

Run = Callable[..., subprocess.CompletedProcess[str]]

HEAD = "import time\nfrom tidewheel import App, Context\napp = App('x')\n@app.workflow\n"
ERROR = HEAD + "async def w(ctx: Context) -> float:\n    return time.time()\n"
WARNING = (
    HEAD
    + "async def w(ctx: Context, n: set[str]) -> None:\n    for one in set(n):\n        await ctx.sleep(1)\n"
)


@pytest.fixture
def flows(folder: Path) -> Path:
    """A file for an app that is to be checked."""
    return folder / "flows.py"


def test_an_error_is_a_line_with_place_rule_and_hint(process: Run, flows: Path) -> None:
    """Editors find the place; registration's own warning is not repeated."""
    flows.write_text(ERROR)

    ran = process("check", "flows.py:app")

    assert ran.returncode == ExitCode.FINDING
    assert ran.stdout == (
        "flows.py:6:12: error clock: time.time() reads the clock, which differs on replay: use ctx.now()\n"
    )
    assert ran.stderr == "flows.py:app: 1 workflow, 1 error, 0 warnings\n"


def test_json_has_every_field_of_a_finding(process: Run, flows: Path) -> None:
    """One finding per line, and nothing for people."""
    flows.write_text(ERROR)

    ran = process("check", "flows:app", "--json")

    found = json.loads(ran.stdout)
    assert ran.returncode == ExitCode.FINDING
    assert (found["rule"], found["level"], found["line"], found["column"]) == ("clock", "error", 6, 12)
    assert found["hint"] == "use ctx.now()"
    assert found["path"].endswith("flows.py")
    assert ran.stderr == ""


@pytest.mark.parametrize(("flags", "code"), [([], ExitCode.OK), (["--strict"], ExitCode.FINDING)])
def test_warnings_alone_fail_only_a_strict_check(
    run: Run, flows: Path, flags: list[str], code: ExitCode
) -> None:
    """A warning may be wrong, so whether it fails the check is the user's choice."""
    flows.write_text(WARNING)

    ran = run("check", "flows.py:app", *flags)

    assert ran.returncode == code
    assert "flows.py:6:16: warning set-order: " in ran.stdout
    assert "1 workflow, 0 errors, 1 warning" in ran.stderr


@pytest.mark.parametrize("flags", [[], ["--json"], ["--strict"]])
def test_a_clean_app_prints_no_finding(run: Run, flags: list[str]) -> None:
    """And passes however strict the check is."""
    ran = run("check", "shop.py:app", *flags)

    assert (ran.returncode, ran.stdout) == (ExitCode.OK, "")
