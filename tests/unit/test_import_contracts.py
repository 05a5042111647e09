"""The import contracts of pyproject.toml really refuse what they are there to refuse.

Each case is a package of empty modules with one import in it, checked under the
real contracts: a contract with a misspelt module name would pass everything.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LAYERS = SETTINGS["tool"]["importlinter"]["contracts"][0]["layers"]
FOLDERS = [name.strip().removeprefix("tidewheel.") for layer in LAYERS for name in layer.split("|")]


def lint(tmp_path: Path, module: str, statement: str) -> subprocess.CompletedProcess[str]:
    """Check a package in which only *module* has a *statement*."""
    package = tmp_path / "tidewheel"
    for folder in FOLDERS:
        (package / folder).mkdir(parents=True)
        (package / folder / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "replay" / "guards.py").touch()
    (package / module).write_text(statement + "\n", "utf-8")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)

    # First on the path, so that the package here hides the installed one.
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    script = "from importlinter.cli import lint_imports_command as lint; lint()"
    command = [sys.executable, "-c", script, "--no-cache"]
    return subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("journal/ids.py", "import msgspec"),
        ("replay/loop.py", "import asyncio"),
        ("replay/guards.py", "import os, random, socket, subprocess, threading, time, uuid"),
        ("sdk/app.py", "import tidewheel.replay.guards"),
        ("cli/main.py", "import typer, tidewheel.testing, tidewheel.sdk"),
        ("telemetry/spans.py", "import opentelemetry.trace, tidewheel.journal"),
        ("store/ledger.py", "import tidewheel.telemetry"),
    ],
)
def test_what_is_allowed_passes(tmp_path: Path, module: str, statement: str) -> None:
    """A folder may use the folders below it; the guards may name what they patch."""
    done = lint(tmp_path, module, statement)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 kept, 0 broken" in done.stdout


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("journal/ids.py", "import asyncio"),
        ("journal/ids.py", "from os import path"),
        ("journal/ids.py", "def f():\n    import time"),
        ("journal/ids.py", "import tidewheel.sdk"),
        ("replay/loop.py", "import time"),
        ("replay/loop.py", "from random import random"),
        ("replay/guards.py", "import sqlalchemy"),
        ("sdk/app.py", "import tidewheel.testing"),
        ("testing/clock.py", "from tidewheel import cli"),
        ("replay/loop.py", "import tidewheel.telemetry"),
        ("telemetry/spans.py", "import tidewheel.store"),
        ("workers/telling.py", "from opentelemetry import trace"),
    ],
)
def test_what_is_forbidden_fails(tmp_path: Path, module: str, statement: str) -> None:
    """An import upwards, or of the outside world into the pure folders, breaks a contract."""
    done = lint(tmp_path, module, statement)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 broken" in done.stdout
