"""Installs a package that tests need on Debian or Ubuntu, and keeps the host as quiet as it was.

A package of a server would start it, enable it for the next boot and, for Postgres, make a database cluster.
None of that happens: only the binaries are wanted. What is changed on the host to prevent it is put back.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.binaries import node_program, postgres_binaries, rabbitmq_scripts
from tests.servers.places import ServerTrouble

_INSTALL_S_MAX = 900.0
_OUTPUT_LINES_MAX = 20
_NO_SERVICES = "#!/bin/sh\nexit 101\n"
_NO_CLUSTER = "create_main_cluster = false\n"
_QUIET = ("-y", "-q", "-o", "DPkg::Lock::Timeout=120")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A server or a tool as Debian packs it: where its binaries are once it is there, what it would enable.

    ``name`` may be several names; ``variable`` is where the URL of another server can be given.
    """

    name: str
    what: str
    found: Callable[[], Path | None]
    variable: str = ""
    units: tuple[str, ...] = ()


POSTGRES = Package(
    name="postgresql",
    what="Postgres server",
    variable="TIDEWHEEL_TEST_POSTGRES",
    units=("postgresql.service",),
    found=postgres_binaries,
)
RABBITMQ = Package(
    name="rabbitmq-server",
    what="RabbitMQ server",
    variable="TIDEWHEEL_TEST_RABBITMQ",
    units=("rabbitmq-server.service", "epmd.service", "epmd.socket"),
    found=rabbitmq_scripts,
)
#: Without certificates npm reaches no registry.
NODE = Package(name="nodejs npm ca-certificates", what="Node.js with npm", found=node_program)


class NoServer(ServerTrouble):
    """This host cannot provide a server; the message says how it could."""


def tell(line: str) -> None:
    """Say what is being done, to whoever looks."""
    sys.stderr.write(f"servers: {line}\n")
    sys.stderr.flush()


def ensure(package: Package, say: Say = tell, *, root: Path = Path("/")) -> Path:
    """Return where the server's programs are, after having them installed if they were not there.

    *root* is where the files lie that are changed for the time of the installation.
    """
    found = package.found()
    if found is not None:
        return found
    install = f"apt-get install --no-install-recommends {package.name}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NoServer(
            f"This host has no {package.what}, and only root on Debian or Ubuntu can get it here.\n"
            f"Run: sudo {install}"
            + (
                f"\nor give the URL of a server that tests may use in {package.variable}."
                * bool(package.variable)
            )
        )
    with _alone(root):
        # Somebody else may have had it installed while this process waited.
        said = "" if package.found() else _install(package, say, install, root)
    found = package.found()
    if found is None:
        raise NoServer(f"`{install}` did not bring a {package.what}:\n{said}")
    return found


def _install(package: Package, say: Say, install: str, root: Path) -> str:
    """Install the package, and return the end of what apt-get said."""
    say(f"no {package.what} on this host: {install} (no service is started or enabled)")
    with (
        _replaced(root / "usr/sbin/policy-rc.d", _NO_SERVICES),
        _replaced(root / "etc/postgresql-common/createcluster.d/tidewheel-tests.conf", _NO_CLUSTER),
    ):
        enabled = _enabled(package, root)
        # Without a network the lists may be old and still good, so only the second has to succeed.
        _apt("update", *_QUIET)
        said = _apt("install", *_QUIET, "--no-install-recommends", *package.name.split())
        for unit in sorted(_enabled(package, root) - enabled):
            subprocess.run(["systemctl", "disable", unit], capture_output=True, check=False)  # noqa: S607 - as apt does
    return said


def _apt(*arguments: str) -> str:
    """Run apt-get, and return the end of what it said."""
    done = subprocess.run(
        ["apt-get", *arguments],  # noqa: S607 - the host's own
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_INSTALL_S_MAX,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
    )
    return "\n".join(done.stdout.splitlines()[-_OUTPUT_LINES_MAX:])


def _enabled(package: Package, root: Path) -> set[str]:
    """Return the package's units that the next boot would start."""
    links = [path for unit in package.units for path in root.glob(f"etc/systemd/system/*.wants/{unit}")]
    return {path.name for path in links} if shutil.which("systemctl") else set()


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Keep others who install for tests waiting, so that nobody puts back what another one still needs."""
    held = os.open(root / "usr/sbin", os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


@contextmanager
def _replaced(path: Path, text: str) -> Iterator[None]:
    """Have *text* in an executable file at *path*, and in the end again what was there before."""
    missing = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    before = path.with_name(path.name + ".before-tidewheel-tests")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() or path.is_symlink():
        path.rename(before)
    try:
        path.write_text(text, "ascii")
        path.chmod(0o755)
        yield
    finally:
        path.unlink(missing_ok=True)
        if before.exists() or before.is_symlink():
            before.rename(path)
        for folder in missing:
            # The package may have put something there.
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
