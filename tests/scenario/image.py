"""The image without an engine: the Dockerfile's instructions, carried out in a root of our own.

All stages share the one root. A step that fetches packages is not executed: the build uses the backend that
is installed here, and the dependencies are copied from the running environment.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.scenario.confined import Root
from tests.scenario.installing import ROOT, copy_dependencies, declared, version
from tests.unit.deploy.reading import dockerfile, final_stage, variables

_FETCHING = "--mount=type=secret"


class Image:
    """What the Dockerfile makes, in *root*."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.wheel = root.folder / "wheel" / f"tidewheel-{version()}-py3-none-any.whl"
        inside = "/"
        for instruction in dockerfile():
            match instruction.name:
                case "WORKDIR":
                    inside = instruction.rest
                    (root.folder / inside.lstrip("/")).mkdir(exist_ok=True)
                case "COPY":
                    self._copy(instruction.rest.split(), root.folder / inside.lstrip("/"))
                case "RUN" if _FETCHING not in instruction.rest:
                    root.step(instruction.rest, inside=inside)
                case "RUN" if "runtime.lock" in instruction.rest:
                    copy_dependencies(declared(self.wheel), self.site, extra="otel")

    @property
    def site(self) -> Path:
        """Where the packages are."""
        (found,) = self.root.folder.glob("opt/tidewheel/lib/python3*/site-packages")
        return found

    @property
    def environment(self) -> dict[str, str]:
        """What the image puts into every environment."""
        system = "/usr/local/bin:/usr/bin:/bin"
        return {name: value.replace("$PATH", system) for name, value in variables(final_stage()).items()}

    def command(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        mounts: Mapping[str, Path] | None = None,
    ) -> list[str]:
        """Return the command that does what ``docker run IMAGE`` *arguments* would."""
        (entrypoint,) = (json.loads(rest) for rest in final_stage()["ENTRYPOINT"])
        given = self.environment | dict(environment or {})
        return self.root.command([*entrypoint, *arguments], environment=given, mounts=mounts)

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Execute any *command* in the image."""
        return self.root.run(command, environment=self.environment)

    def _copy(self, words: list[str], here: Path) -> None:
        *flags, source, target = words
        if flags:
            place = self.root.folder / source.strip("/")
            if place != here / target.strip("/"):
                shutil.copytree(place, here / target.strip("/"), dirs_exist_ok=True)
        elif source == ".":
            copy_context(here)
        else:
            (here / target).mkdir(exist_ok=True)
            shutil.copy(ROOT / source, here / target)


def copy_context(target: Path) -> None:
    """Copy what ``Dockerfile.dockerignore`` lets in to *target*, links as links."""
    lines = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    for line in lines:
        if not line.startswith("!"):
            continue
        source = ROOT / line[1:]
        place = target / line[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, place, symlinks=True, ignore=ignored, dirs_exist_ok=True)
        else:
            shutil.copy(source, place)
