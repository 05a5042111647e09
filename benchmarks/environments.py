"""Environments for the peers, made on demand: each in a folder of its own, from pinned requirements."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".bench"
_REQUIREMENTS = Path(__file__).with_name("requirements")
_INSTALL_S_MAX = 900.0


class NotToBeHad(Exception):
    """Something cannot be installed here; the text says what and why."""


def python_of(name: str) -> str:
    """Return the interpreter of the environment *name*, which is made if it is not there."""
    wanted = (_REQUIREMENTS / f"{name}.txt").read_bytes()
    folder = FOLDER / name
    stamp = folder / "installed"
    mark = hashlib.sha256(wanted).hexdigest()
    python = folder / "venv" / "bin" / "python"
    if not stamp.exists() or stamp.read_text("utf-8") != mark:
        say(f"installing {name} into {folder.relative_to(ROOT)} ...")
        shutil.rmtree(folder / "venv", ignore_errors=True)
        venv.create(folder / "venv", with_pip=True)
        _run([str(python), "-m", "pip", "install", "-q", "-r", str(_REQUIREMENTS / f"{name}.txt")])
        stamp.write_text(mark, "utf-8")
    return str(python)


def npm_package(name: str, package: str, file: str) -> Path:
    """Return *file* of a package from npm, installed into the environment *name* if it is not there."""
    folder = FOLDER / name
    found = folder / "node_modules" / file
    if not found.exists():
        if shutil.which("npm") is None:
            message = f"{package} comes from npm, which is not installed"
            raise NotToBeHad(message)
        say(f"installing {package} into {folder.relative_to(ROOT)} ...")
        folder.mkdir(parents=True, exist_ok=True)
        _run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), package])
    if not found.exists():
        message = f"{package} has no {file} for this machine"
        raise NotToBeHad(message)
    return found


def say(line: str) -> None:
    """Tell the user what takes so long."""
    sys.stderr.write(f"bench: {line}\n")
    sys.stderr.flush()


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_INSTALL_S_MAX)  # noqa: S603 - what this file says
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"{command[0]}: {error}"
        raise NotToBeHad(message) from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise NotToBeHad(lines[-1] if lines else f"{command[0]} ended with {done.returncode}")
