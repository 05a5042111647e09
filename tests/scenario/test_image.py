"""The image's contents, and that they work as nobody, on a file system that cannot be written to.

The image itself is not built: there is no Docker engine here, and no package index. See ``confined``.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.scenario.confined import USER
from tests.scenario.image import Image
from tests.scenario.installing import ROOT, product_files, version
from tests.servers.places import free_port
from tests.unit.deploy.reading import health_command

pytestmark = pytest.mark.skipif(
    not (ROOT / "Makefile").exists(), reason="an unpacked sdist has no folders at the root"
)

APP = {"/app/order.py": ROOT / "examples" / "order.py"}
#: Tries to write in each place, and says what came of it, who it is and what it may do.
LOOK = """
import json, os, re
def tried(folder):
    try:
        with open(os.path.join(folder, "written"), "w"):
            return "written"
    except OSError as problem:
        return problem.strerror
status = open("/proc/self/status").read()
print(json.dumps({
    "places": {folder: tried(folder) for folder in ("/", "/app", "/opt/tidewheel", "/usr", "/run", "/tmp")},
    "ids": [*os.getresuid(), *os.getresgid(), *os.getgroups()],
    "capabilities": [int(found, 16) for found in re.findall(r"Cap\\w+:\\s*(\\w+)", status)],
    "no_new_privileges": re.search(r"NoNewPrivs:\\s*(\\d)", status)[1],
    "home": os.environ.get("HOME"),
}))
"""


def test_the_wheel_of_the_image_holds_the_whole_product(image: Image) -> None:
    """What the build is shown is enough: every file of the checkout is in it, as it is."""
    with zipfile.ZipFile(image.wheel) as archive:
        found = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}

    assert found == {name: (ROOT / "src" / name).read_bytes() for name in product_files()}


def test_its_packages_are_those_of_the_lock(image: Image) -> None:
    """Nothing that Tidewheel declares is left out of the pins, and nothing is pinned for nothing."""
    text = (ROOT / "requirements" / "runtime.lock").read_text("utf-8")
    lines = [line for line in text.splitlines() if "==" in line and "sys_platform == 'win32'" not in line]
    pinned = {tuple(re.split("==|[ ;]", line)[:2]) for line in lines}

    installed = {
        (canonicalize_name(found.name), found.version) for found in distributions(path=[str(image.site)])
    }
    assert installed - {("tidewheel", version())} == pinned


def test_a_process_in_it_can_do_nothing_but_its_work(image: Image) -> None:
    """The tests below mean something: no root, no capability, no place to write to but /tmp."""
    done = image.execute("python", "-c", LOOK)

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    read_only = dict.fromkeys(("/", "/app", "/opt/tidewheel", "/usr", "/run"), "Read-only file system")
    assert seen["places"] == {**read_only, "/tmp": "written"}  # noqa: S108 - the root's own
    assert set(seen["ids"]) == {int(USER)}
    assert set(seen["capabilities"]) == {0}
    assert (seen["no_new_privileges"], seen["home"]) == ("1", None)


def test_the_command_runs_without_root_and_without_a_home(image: Image) -> None:
    """It needs no name, no home and nothing to write to."""
    done = subprocess.run(
        image.command(["--version"]), capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, f"tidewheel {version()}\n", "")


def test_an_app_is_loaded_from_a_read_only_place(image: Image) -> None:
    """Mounted into the working folder, it is found by the name of its file."""
    command = image.command(["check", "order.py:app"], mounts=APP)

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "order.py:app: 1 workflow, 0 errors, 0 warnings\n"


def test_it_works_and_stops_by_the_signal_it_names(image: Image, tmp_path: Path) -> None:
    """A whole process, with its store in /tmp: it becomes ready and healthy, and on SIGTERM ends in order."""
    port = free_port()
    environment = {
        "TIDEWHEEL_STORE": "sqlite:////tmp/tidewheel.db",
        "TIDEWHEEL_HEALTH": f"127.0.0.1:{port}",
    }
    command = image.command(["up", "order.py:app", "--json"], environment=environment, mounts=APP)
    log = tmp_path / "log"

    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None
        with process.stdout:
            was_ready = any('"ready"' in line for line in process.stdout)
            healthy = image.execute(*health_command(port))
            process.send_signal(signal.SIGTERM)
            last_words = process.stdout.read()
        code = process.wait(60)

    assert code == 0, log.read_text("utf-8")
    assert was_ready
    assert healthy.returncode == 0, healthy.stderr
    assert '"stopped"' in last_words
