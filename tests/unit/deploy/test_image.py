"""The image: what its Dockerfile may say, and that its health check tells health from sickness.

No image is built here: that needs a Docker engine. What the build's steps do is tried
in ``tests/scenario/test_image.py``.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.unit.deploy.reading import (
    DOCKERFILE,
    HEALTH_PORT,
    IS_CHECKOUT,
    ROOT,
    dockerfile,
    final_stage,
    health_command,
    instructions,
    run_tool,
    services,
    variables,
)

pytestmark = pytest.mark.skipif(not IS_CHECKOUT, reason="an unpacked sdist has no folders at the root")


def project_version() -> str:
    """Return the version that pyproject.toml gives."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"])


@contextmanager
def answering(status: int) -> Iterator[tuple[int, list[str]]]:
    """Answer every request with *status*; gives the port, and the paths that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port, asked
        finally:
            server.shutdown()
            thread.join()


def checked(port: int) -> int:
    """Run the health check and return its exit code."""
    # A proxy that is set for an app's own calls must not be asked about this very container.
    environment = {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    _, *command = health_command(port)
    command = [sys.executable, *command]
    return subprocess.run(command, env=environment, capture_output=True, timeout=30, check=False).returncode


def test_hadolint_finds_nothing() -> None:
    """No rule is switched off."""
    assert run_tool("hadolint", "--no-color", DOCKERFILE) == ""
    assert "hadolint ignore" not in DOCKERFILE.read_text("utf-8")


def test_hadolint_would_find_something(tmp_path: Path) -> None:
    """A check that agrees with everything is none."""
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM python:latest\nRUN cd / && sudo true\n", "utf-8")

    assert "DL3007" in run_tool("hadolint", "--no-color", bad)


def test_the_image_that_users_are_shown_is_a_good_one_too(tmp_path: Path) -> None:
    """It is built on this one, of this version, and goes back to the user that is not root."""
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    (shown,) = re.findall(r"^```dockerfile\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    theirs = tmp_path / "Dockerfile"
    theirs.write_text(shown, "utf-8")

    assert run_tool("hadolint", "--no-color", theirs) == ""
    assert instructions(shown)[0].rest == f"tidewheel:{project_version()}"
    assert instructions(shown)[-1].rest == final_stage()["USER"][0]


def test_every_stage_begins_with_one_pinned_python() -> None:
    """What is installed in one stage is run in another: both have the same Python, by version."""
    (argument,) = [
        found.rest for found in dockerfile() if found.name == "ARG" and "PYTHON_IMAGE" in found.rest
    ]
    stages = [found.rest.split()[0] for found in dockerfile() if found.name == "FROM"]

    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.1[1-3]-slim-[a-z]+", argument)
    assert len(stages) == 3
    assert set(stages) == {"${PYTHON_IMAGE}"}


def test_it_runs_as_nobody_in_particular() -> None:
    """A numeric user that is not root: orchestrators can check that, a name they cannot."""
    assert final_stage()["USER"] == ["10001:10001"]


def test_it_is_the_command_and_stops_by_sigterm() -> None:
    """No shell in between, which would keep the signal to itself."""
    stage = final_stage()

    assert stage["ENTRYPOINT"] == ['["tidewheel"]']
    assert stage["STOPSIGNAL"] == ["SIGTERM"]
    assert stage["WORKDIR"] == ["/app"]


def test_it_writes_nothing_beside_its_work() -> None:
    """No compiled files on a read-only file system, and no lines kept back in a buffer."""
    found = variables(final_stage())

    assert found["PYTHONDONTWRITEBYTECODE"] == "1"
    assert found["PYTHONUNBUFFERED"] == "1"
    assert found["PATH"].startswith("/opt/tidewheel/bin:")


def test_it_listens_where_its_health_check_asks() -> None:
    """Only inside the container, unless somebody says otherwise."""
    assert variables(final_stage())["TIDEWHEEL_HEALTH"] == f"127.0.0.1:{HEALTH_PORT}"


def test_it_carries_this_version() -> None:
    """Label and tag say what is in it."""
    stage = final_stage()
    labels = " ".join(stage["LABEL"])

    assert f"VERSION={project_version()}" in stage["ARG"]
    assert f"-t tidewheel:{project_version()} ." in DOCKERFILE.read_text("utf-8")
    for name in ("title", "description", "licenses", "version", "revision"):
        assert f"org.opencontainers.image.{name}=" in labels


def test_nothing_is_installed_without_a_hash() -> None:
    """Whatever comes from an index is one of the pinned files; the wheel is our own."""
    steps = [found.rest for found in dockerfile() if found.name == "RUN" and " -m pip " in found.rest]

    fetching = [step for step in steps if "--no-index" not in step]
    assert len(steps) == 4
    assert all("--require-hashes" in step and "--only-binary :all:" in step for step in fetching)
    assert all("--mount=type=secret,id=pip,target=/etc/pip.conf" in step for step in fetching)


def test_a_process_that_is_well_passes_the_health_check() -> None:
    """It asks ``/healthz``, past any proxy."""
    with answering(200) as (port, asked):
        code = checked(port)

    assert code == 0
    assert asked == ["/healthz"]


@pytest.mark.parametrize("status", [204, 404, 500, 503])
def test_a_process_that_is_not_well_fails_it(status: int) -> None:
    """Whatever is not 200 is not well."""
    with answering(status) as (port, _):
        assert checked(port) == 1


def test_a_process_that_does_not_listen_fails_it() -> None:
    """Whoever does not answer is not well, for instance one that hangs in its start."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        _, port = taken.getsockname()

        assert checked(port) == 1


def test_the_build_is_shown_every_folder_of_the_product() -> None:
    """A folder that is not let in would be missing from the wheel."""
    lines = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    folders = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}

    assert lines[1] == "*"
    assert {f"!{folder}/" for folder in folders} <= set(lines)


def test_the_images_of_the_compose_file_are_pinned() -> None:
    """By a version that does not move to the next major one by itself."""
    images = {service["image"] for service in services().values()}

    assert f"tidewheel:{project_version()}" in images
    assert [image for image in images if not re.fullmatch(r"[a-z]+:\d+(\.\d+)*(-[a-z]+)?", image)] == []


def test_continued_lines_and_comments_are_read_as_docker_reads_them() -> None:
    """The reader of these tests sees whole instructions."""
    text = "# a\nFROM x AS y\nRUN a \\\n    && b\n# c\nENV A=1 \\\n    # inside\n    B=2\n"

    assert [(found.name, found.rest) for found in instructions(text)] == [
        ("FROM", "x AS y"),
        ("RUN", "a && b"),
        ("ENV", "A=1 B=2"),
    ]
