"""Builds the product and installs it where nothing else is installed.

Nothing here needs a network. The build uses the build backend that is installed;
the dependencies are copied from the running environment, and only those that
the wheel declares, so that one we forgot to declare is missed here first.
"""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import tomllib
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path) -> str:
    """Run *command* away from the checkout and its environment; return what it printed."""
    environment = {"PATH": os.defpath, "HOME": str(cwd), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def version() -> str:
    """Return the version that pyproject.toml gives."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["version"])


def product_files() -> set[str]:
    """Return the names under which the files of the checkout are installed."""
    package = ROOT / "src" / "tidewheel"
    folders = [path for path in package.iterdir() if path.is_dir() and path.name != "__pycache__"]
    inner = {
        f"tidewheel/{folder.name}/{path.relative_to(folder).as_posix()}"
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    return inner | {"tidewheel/__init__.py", "tidewheel/py.typed"}


def declared(wheel: Path) -> list[Requirement]:
    """Return what the wheel's metadata asks for."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"tidewheel-{version()}.dist-info/METADATA").decode()
    return [Requirement(text) for text in email.message_from_string(metadata).get_all("Requires-Dist", [])]


def copy_dependencies(wanted: list[Requirement], target: Path, *, extra: str = "") -> None:
    """Copy *wanted*, and what they want in turn, from the running environment to *target*.

    What only an extra asks for is left out, unless it is this *extra*.
    """
    waiting = [(requirement, extra) for requirement in wanted]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement, of = waiting.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"extra": of}):
            continue
        found = distribution(name)
        assert found.version in requirement.specifier
        for asked in {"", *requirement.extras}:
            if (name, asked) not in seen:
                seen.add((name, asked))
                waiting += [(Requirement(text), asked) for text in found.requires or []]
        _copy_files(found, target)


def _copy_files(found: Distribution, target: Path) -> None:
    for file in found.files or []:
        source, place = Path(str(file.locate())), target / file
        # Entry points lie outside, as ../../../bin/name; a cache may have been removed.
        if ".." in file.parts or place.exists() or not source.exists():
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, place)  # with its time, by which Python knows what is compiled already
