"""Finding the app: ``module:app`` and ``path.py:app``, and what is said where it is not there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tidewheel.cli.exit_codes import ExitCode

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize("app", ["shop:app", "shop.py:app", "./shop.py:app"])
def test_an_app_is_a_module_or_a_file(process: Run, app: str) -> None:
    """A module is looked for in the current folder too, also by the installed command."""
    ran = process("check", app)

    assert (ran.returncode, ran.stdout) == (ExitCode.OK, "")
    assert ran.stderr == f"{app}: 5 workflows, 0 errors, 0 warnings\n"


def test_a_file_imports_its_neighbours(process: Run, folder: Path) -> None:
    """As a script would, wherever the command is run."""
    (folder / "deep").mkdir()
    (folder / "deep" / "names.py").write_text("NAME = 'x'\n")
    (folder / "deep" / "flows.py").write_text(
        "from tidewheel import App\nfrom names import NAME\napp = App(NAME)\n"
    )

    assert process("check", "deep/flows.py:app").returncode == ExitCode.OK


@pytest.mark.parametrize("app", ["pack/flows.py:app", "pack.flows:app"])
def test_a_file_of_a_package_is_imported_as_part_of_it(process: Run, folder: Path, app: str) -> None:
    """Relative imports work in it."""
    (folder / "pack").mkdir()
    (folder / "pack" / "__init__.py").write_text("")
    (folder / "pack" / "names.py").write_text("NAME = 'x'\n")
    (folder / "pack" / "flows.py").write_text(
        "from tidewheel import App\nfrom .names import NAME\napp = App(NAME)\n"
    )

    assert process("check", app).returncode == ExitCode.OK


def test_a_file_may_be_named_like_a_loaded_module(process: Run, folder: Path) -> None:
    """The library keeps its module, and the app is found all the same."""
    (folder / "enum.py").write_text((folder / "shop.py").read_text())

    assert process("check", "enum.py:app").returncode == ExitCode.OK


@pytest.mark.parametrize(
    ("app", "code", "message", "advice"),
    [
        ("shop", 2, "'shop' does not name an app", "write it as module:app or path.py:app"),
        (":app", 2, "':app' does not name an app", "write it as module:app or path.py:app"),
        ("shop.py:", 2, "'shop.py:' does not name an app", "write it as module:app or path.py:app"),
        ("none:app", 3, "there is no module 'none'", "run this where it can be imported from"),
        ("shop.none:app", 3, "there is no module 'shop.none'", "run this where it can be imported from"),
        ("none.py:app", 3, "there is no file 'none.py'", "path.py:app"),
        ("shop.py:ap", 3, "shop.py has no 'ap'", "did you mean shop.py:app?"),
        ("shop:order", 3, "'order' in shop is not an App", "did you mean shop:app?"),
        ("json:app", 3, "json has no 'app'", "json holds no App at all"),
    ],
)
def test_an_app_that_is_not_there_is_explained(
    run: Run, app: str, code: int, message: str, advice: str
) -> None:
    """What is wrong, and what to write instead."""
    plain = run("check", app)
    as_json = run("check", app, "--json")

    first, second = plain.stderr.splitlines()
    assert (plain.returncode, plain.stdout) == (code, "")
    assert first.startswith(f"error: {message}")
    assert advice in second
    assert json.loads(as_json.stderr)["error"]["message"].startswith(message)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("def helper():\n    raise ValueError('boom')\nhelper()\n", "ValueError"),
        ("import not_installed\n", "ModuleNotFoundError"),
        ("def (:\n", "SyntaxError"),
        ("raise SystemExit(0)\n", "SystemExit"),
    ],
)
@pytest.mark.parametrize("app", ["bad:app", "bad.py:app"])
def test_an_error_in_the_users_module_shows_its_own_traceback(
    run: Run, folder: Path, app: str, source: str, kind: str
) -> None:
    """Where it went wrong in their code, without a frame of ours or of the import system."""
    (folder / "bad.py").write_text(source)

    plain = run("check", app)
    as_json = run("check", app, "--json")

    assert (plain.returncode, plain.stdout) == (ExitCode.INVALID, "")
    assert "bad.py" in plain.stderr
    assert plain.stderr.splitlines()[-1].startswith("error: ")
    assert f"cannot be imported: {kind}" in plain.stderr
    assert "apps.py" not in plain.stderr
    assert "importlib" not in plain.stderr
    assert json.loads(as_json.stderr)["error"]["type"] == kind
