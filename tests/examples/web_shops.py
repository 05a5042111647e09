"""What the tests of the web shops share: a worker in a process of its own, real servers, and patience."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import COMMAND, Service

ROOT = Path(__file__).resolve().parents[2]
#: Seconds that nothing here should take.
PATIENCE_S = 40.0
PAUSE_S = 0.05


def set_servers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a Postgres and a RabbitMQ of the test's own instead of files, where *request* is for servers."""
    if request.param == "servers":
        monkeypatch.setenv("TIDEWHEEL_STORE", request.getfixturevalue("journals"))
        monkeypatch.setenv("TIDEWHEEL_BROKER", request.getfixturevalue("fresh_rabbitmq"))


@contextlib.contextmanager
def working_on(app: str, folder: Path) -> Iterator[None]:
    """Have a worker and a keeper for *app* while the block lasts, as ``tidewheel dev`` in *folder*."""
    service = Service("dev", app, folder=folder)
    try:
        service.wait_for("ready")
        yield
        service.send(signal.SIGINT)
        assert service.exit_code() == 0, service.text
    finally:
        service.end()


def findings(app: str, folder: Path) -> str:
    """Return the last line of what ``tidewheel check`` says of *app*."""
    done = subprocess.run(
        [*COMMAND, "check", app], cwd=folder, stderr=subprocess.PIPE, encoding="utf-8", check=False
    )
    return done.stderr.rstrip().rpartition("\n")[2]


def eventually(ask: Callable[[], object], expected: object) -> None:
    """Ask again and again until the answer is *expected*: nothing announces it over HTTP."""
    deadline_s = time.monotonic() + PATIENCE_S
    while (answer := ask()) != expected:
        assert time.monotonic() < deadline_s, f"{answer!r} instead of {expected!r}"
        time.sleep(PAUSE_S)


def commands(module: Path) -> list[list[str]]:
    """Return the commands that the top of *module* tells its reader to try."""
    text = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or ""
    return [line.split() for line in text.splitlines() if line.startswith("    ")]


@contextlib.contextmanager
def serving(command: list[str], address: tuple[str, ...], folder: Path) -> Iterator[str]:
    """Run the web server of *command* while the block lasts; return where it is."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    program = command[1:] if command[0] == "python" else ["-m", *command]
    place = [part.format(port=port) for part in address]
    with (
        (folder / "server.log").open("w", encoding="utf-8") as log,
        subprocess.Popen(
            [sys.executable, *program, *place], cwd=folder, env=os.environ.copy(), stdout=log, stderr=log
        ) as server,
    ):
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


def fetched(url: str, data: bytes | None = None, content_type: str = "application/json") -> tuple[int, Any]:
    """Request *url*, once the server is up; return the status and the JSON of the answer."""
    headers = {} if data is None else {"Content-Type": content_type}
    request = urllib.request.Request(url, data, headers)  # noqa: S310 - a server of ours
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:  # noqa: S310 - as above
                return response.status, json.load(response)
        except urllib.error.HTTPError as problem:
            with problem:
                return problem.code, json.load(problem)
        except urllib.error.URLError:
            assert time.monotonic() < deadline_s, f"{url} is not served"
            time.sleep(PAUSE_S)
