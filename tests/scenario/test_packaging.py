"""What users install: built, looked into, installed into an empty environment and run.

Nothing here needs a network. The build uses the build backend that is installed;
the dependencies are copied from the running environment, and only those that
the wheel declares, so that one we forgot to declare is missed here first.
"""

from __future__ import annotations

import email
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    not (ROOT / "Makefile").exists(), reason="an unpacked sdist has no folders at the root"
)


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


def copy_dependencies(wanted: list[Requirement], target: Path) -> None:
    """Copy *wanted*, and what they want in turn, from the running environment to *target*."""
    copied: set[str] = set()
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        if name in copied or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        copied.add(name)
        found = distribution(name)
        assert found.version in requirement.specifier
        for file in found.files or []:
            # Entry points lie outside, as ../../../bin/name; caches are made again.
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(str(file.locate())), target / file)
        wanted += [Requirement(text) for text in found.requires or []]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist, and the wheel from the sdist as an installer would."""
    target = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", target, ROOT, cwd=target)
    return target


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    """Return the wheel that was built."""
    return dist / f"tidewheel-{version()}-py3-none-any.whl"


@pytest.fixture(scope="module")
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


def test_the_wheel_holds_the_product_and_nothing_else(wheel: Path) -> None:
    """Every file of the folders is there, in the package; tests and tools are not."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())

    metadata = {name for name in names if name.startswith(f"tidewheel-{version()}.dist-info/")}
    assert names - metadata == product_files()
    assert f"tidewheel-{version()}.dist-info/licenses/LICENSE" in metadata


def test_the_wheel_holds_plain_files(wheel: Path) -> None:
    """Users never meet the links of the checkout."""
    with zipfile.ZipFile(wheel) as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}

    assert [name for name, mode in modes.items() if stat.S_ISLNK(mode)] == []


def test_the_sdist_holds_plain_files_once(dist: Path) -> None:
    """The sdist has the product under ``src``, the tests, and no file twice."""
    top = f"tidewheel-{version()}"
    with tarfile.open(dist / f"{top}.tar.gz") as archive:
        members = archive.getmembers()

    names = [member.name for member in members if member.isfile()]
    assert [member.name for member in members if not (member.isfile() or member.isdir())] == []
    assert len(names) == len(set(names))
    assert {name for name in names if name.startswith(f"{top}/src/")} == {
        f"{top}/src/{name}" for name in product_files()
    }
    assert {name.split("/")[1] for name in names if name.count("/") > 1} == {"src", "tests"}
    assert {f"{top}/LICENSE", f"{top}/README.md", f"{top}/pyproject.toml"} <= set(names)


def test_only_tidewheel_lands_in_site_packages(site: Path) -> None:
    """Names like ``journal`` or ``cli`` stay free for the user."""
    installed = {path.name for path in site.iterdir()} - {"dependencies.pth"}

    assert installed == {"tidewheel", f"tidewheel-{version()}.dist-info"}


def test_type_checkers_find_the_types(site: Path) -> None:
    """``py.typed`` is installed, so that users get our annotations."""
    assert (site / "tidewheel" / "py.typed").is_file()


def test_every_module_imports_with_the_declared_dependencies_alone(site: Path) -> None:
    """No module needs a package that only developers have."""
    python = site.parents[2] / "bin" / "python"
    files = [path.relative_to(site).with_suffix("") for path in (site / "tidewheel").rglob("*.py")]
    modules = sorted({".".join(file.parts).removesuffix(".__init__") for file in files} - {"tidewheel"})
    # Alembic runs its environment itself, inside a migration.
    plain = [name for name in modules if not name.endswith(("__main__", "migrations.env"))]
    script = "import importlib, sys; print(len([importlib.import_module(name) for name in sys.argv[1:]]))"

    printed = run(python, "-W", "error", "-c", script, "tidewheel", *plain, cwd=site.parent)

    assert printed == f"{len(plain) + 1}\n"


def test_the_command_runs(site: Path) -> None:
    """The installed ``tidewheel`` knows its version."""
    printed = run(site.parents[2] / "bin" / "tidewheel", "--version", cwd=site.parent)

    assert printed.split()[-1] == version()
