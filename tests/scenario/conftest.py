"""What the scenarios share: the product, built once and installed once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.scenario.confined import Root, missing
from tests.scenario.image import Image
from tests.scenario.installing import ROOT, copy_dependencies, declared, run, version


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist, and the wheel from the sdist as an installer would."""
    target = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", target, ROOT, cwd=target)
    return target


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    """Return the wheel that was built."""
    return dist / f"tidewheel-{version()}-py3-none-any.whl"


@pytest.fixture(scope="session")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an empty environment; return its site-packages."""
    place = tmp_path_factory.mktemp("installed")
    environment, dependencies = place / "venv", place / "dependencies"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=place)
    run(
        *(sys.executable, "-m", "pip", "--python", environment / "bin" / "python"),
        *("install", "--quiet", "--no-index", "--no-deps", wheel),
        cwd=place,
    )
    (found,) = environment.glob("lib/python3*/site-packages")
    copy_dependencies(declared(wheel), dependencies)
    (found / "dependencies.pth").write_text(f"{dependencies}\n", "utf-8")
    return found


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image, as far as it can be made without an engine and without a package index."""
    lacking = missing()
    if lacking is not None:
        pytest.skip(f"NOT TESTED, that the image runs without root on a read-only file system: {lacking}")
    return Image(Root(tmp_path_factory.mktemp("image") / "root"))
