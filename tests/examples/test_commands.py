"""What the top of each example tells you to try is tried, with the real command and real processes."""

from __future__ import annotations

import ast
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidewheel import SyncClient

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.name != "story.py")
SECONDS_MAX = 40.0


def blocks(path: Path) -> tuple[str, list[str]]:
    """Return the command of the first terminal, and those of the second."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    joined = text.replace("\\\n", " ")
    first, *second = re.findall(r"^    (\S.*)$", joined, re.MULTILINE)
    return first, second


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A shell with nothing of the user's in it, in which ``tidewheel`` is this checkout's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "tidewheel"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tidewheel.cli.main "$@"\n', "utf-8")
    command.chmod(0o755)
    return {
        "HOME": str(tmp_path),
        "PATH": f"{folder}{os.pathsep}{os.defpath}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(ROOT / "src"),
    }


@contextmanager
def first_terminal(command: str, tmp_path: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run *command* while the block lasts, then stop it as Ctrl-C would."""
    line = "exec env " + command.replace("examples/", f"{shlex.quote(str(ROOT))}/examples/")
    with (
        (tmp_path / "first.log").open("w") as log,
        subprocess.Popen(
            ["/bin/sh", "-c", line],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        ) as process,
    ):
        try:
            yield
            assert process.poll() is None, (tmp_path / "first.log").read_text("utf-8")
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=SECONDS_MAX) == 0
        finally:
            process.kill()


def try_out(command: str, tmp_path: Path, environment: dict[str, str]) -> None:
    """Execute *command*; where it comes before what it is about, as a fast typist may, try again."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=SECONDS_MAX,
            check=False,
        )
        if done.returncode == 0:
            return
        assert time.monotonic() < deadline, f"$ {command}\n{done.stdout}"
        time.sleep(0.2)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_commands_of_an_example_take_its_run_to_the_end(
    path: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Every command works, in the order in which they are shown, and the run completes."""
    first, second = blocks(path)
    assert first.endswith(f"tidewheel dev examples/{path.name}:app")
    assert second[0].startswith("tidewheel run start ")

    with first_terminal(first, tmp_path, environment):
        for command in second:
            try_out(command, tmp_path, environment)
        with SyncClient.connect(f"sqlite:///{tmp_path / 'tidewheel.db'}", "embedded://", "default") as client:
            (run,) = client.runs()
            client.handle(run.run_id).result(timeout=SECONDS_MAX)
            status = client.handle(run.run_id).status()

    assert status == "COMPLETED"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_has_nothing_that_would_not_replay(path: Path, environment: dict[str, str]) -> None:
    """``tidewheel check`` finds no error and no warning in it."""
    done = subprocess.run(
        ["/bin/sh", "-c", f"tidewheel check examples/{path.name}:app"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=SECONDS_MAX,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert done.stdout.rstrip().endswith("0 errors, 0 warnings")
