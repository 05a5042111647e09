"""A container without an engine: the image's own steps, and a process inside what they make.

The root is a folder in which the steps of the Dockerfile were executed as they are written, except those that
fetch packages. Of the host it has ``/usr`` and Python, read-only. A process in it is what ``compose.yaml``
asks for: no root, no capabilities, no way to get any, a root that cannot be written to, a ``/tmp`` in memory,
and no environment but the one it is given. It shares the host's network and processes, which a container
would not. It takes root and ``unshare`` to make one: ``missing`` says what this host lacks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

USER = "10001"
_STEP_S_MAX = 120.0
_TOOLS = ("unshare", "mount", "chroot", "setpriv", "env")

# $1 is the root, $2 is "ro" or "rw", $3 the number of pairs "source target" that follow; then the command.
_ENTER = """
set -eu
root=$1 mode=$2 pairs=$3
shift 3
umask 022
mount --bind "$root" "$root"
mount -t tmpfs -o size=64m,mode=1777,nosuid,nodev,noexec tmpfs "$root/tmp"
while [ "$pairs" -gt 0 ]; do
    mkdir -p "$root${2%/*}"
    if [ -d "$1" ]; then mkdir -p "$root$2"; elif [ ! -e "$root$2" ]; then : > "$root$2"; fi
    mount --bind "$1" "$root$2"
    case $2 in /dev/*|/proc) ;; *) mount -o remount,bind,ro "$root$2" ;; esac
    shift 2
    pairs=$((pairs - 1))
done
if [ "$mode" = ro ]; then mount -o remount,bind,ro "$root"; fi
exec chroot "$root" "$@"
"""


def missing() -> str | None:
    """Say why this host cannot confine a process; None if it can."""
    if os.geteuid() != 0:
        return "only root can give a process a root file system and another user"
    absent = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if absent:
        return f"this host has no {', '.join(absent)}"
    trial = [str(shutil.which("unshare")), "--mount", "true"]
    tried = subprocess.run(trial, capture_output=True, text=True, timeout=30, check=False)
    return None if tried.returncode == 0 else f"unshare --mount: {tried.stderr.strip()}"


class Root:
    """A root file system in *folder*, with what the host lends it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("tmp", "proc", "dev", "etc", "app", "opt", "run"):
            (folder / name).mkdir(parents=True)
        for link in ("bin", "sbin", "lib", "lib64"):
            if Path("/", link).is_symlink():
                (folder / link).symlink_to(Path("/", link).readlink())
        lent = ["/usr", "/proc", "/dev/null", "/dev/urandom", sys.base_prefix]
        lent += [f"/{name}" for name in ("bin", "sbin", "lib", "lib64") if not Path("/", name).is_symlink()]
        self._lent = {target: Path(target) for target in lent if Path(target).exists()}

    def step(self, line: str, *, inside: str = "/") -> None:
        """Execute a step of a build, as root and with everything writable."""
        path = f"{sys.prefix}/bin:/usr/bin:/bin"
        environment = {"PATH": path, "HOME": "/tmp", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}  # noqa: S108 - the root's own
        # The build uses the Python of the tests, which has what builds a wheel.
        lent = self._lent | {sys.prefix: Path(sys.prefix)}
        command = [*_with(environment, inside), "/bin/sh", "-euc", line]
        done = subprocess.run(
            self._entering(lent, "rw", command),
            capture_output=True,
            text=True,
            timeout=_STEP_S_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"

    def command(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        mounts: Mapping[str, Path] | None = None,
        inside: str = "/app",
    ) -> list[str]:
        """Return the command that executes *command*, confined.

        *mounts* are the files that the root has beside its own, by their place in it. Each program on the way
        becomes the next, so a signal to the process reaches *command* itself.
        """
        dropped = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        dropped += ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
        return self._entering(
            self._lent | dict(mounts or {}), "ro", [*_with(environment, inside), *dropped, *command]
        )

    def run(self, command: Sequence[str], **how: Any) -> subprocess.CompletedProcess[str]:
        """Execute *command*, confined, to its end."""
        return subprocess.run(
            self.command(command, **how), capture_output=True, text=True, timeout=_STEP_S_MAX, check=False
        )

    def _entering(self, lent: Mapping[str, Path], mode: str, command: Sequence[str]) -> list[str]:
        pairs = [part for target, source in lent.items() for part in (str(source), target)]
        entering = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, "sh"]
        return [*entering, str(self.folder), mode, str(len(lent)), *pairs, *command]


def _with(environment: Mapping[str, str], inside: str) -> list[str]:
    pairs = [f"{name}={value}" for name, value in environment.items()]
    return ["/usr/bin/env", "--ignore-environment", f"--chdir={inside}", *pairs]
