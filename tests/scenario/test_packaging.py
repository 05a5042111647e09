"""What users install: built, looked into, installed into an empty environment and run."""

from __future__ import annotations

import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.scenario.installing import ROOT, product_files, run, version

#: What is imported when telemetry is turned on, with the extra ``otel``.
NEED_OTEL = {f"tidewheel.telemetry.{name}" for name in ("meters", "providers", "recorder", "spans")}

pytestmark = pytest.mark.skipif(
    not (ROOT / "Makefile").exists(), reason="an unpacked sdist has no folders at the root"
)


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


def test_the_schemas_of_messages_are_installed(site: Path) -> None:
    """Whoever has the package has the contract of the bus, and needs nothing else to read it."""
    python = site.parents[2] / "bin" / "python"
    script = (
        "from importlib.resources import files; from tidewheel.broker.schemas import BODIES, schema_of; "
        "print(*(schema_of(body)['title'] for body in BODIES)); "
        "print(*sorted(each.name for each in files('tidewheel.broker.schemas').iterdir() "
        "if each.name.endswith('.json')))"
    )

    printed = run(python, "-c", script, cwd=site.parent)

    assert printed.splitlines() == [
        "PublicEvent Alert StartCommand SignalCommand CancelCommand",
        "alert.json cancel.json event.json signal.json start.json",
    ]


def test_every_module_imports_with_the_declared_dependencies_alone(site: Path) -> None:
    """No module needs a package that only developers have, but those that need the extra for telemetry."""
    python = site.parents[2] / "bin" / "python"
    files = [path.relative_to(site).with_suffix("") for path in (site / "tidewheel").rglob("*.py")]
    modules = sorted({".".join(file.parts).removesuffix(".__init__") for file in files} - {"tidewheel"})
    # Alembic runs its environment itself, inside a migration.
    plain = [name for name in modules if not name.endswith(("__main__", "migrations.env"))]
    assert set(plain) >= NEED_OTEL
    plain = [name for name in plain if name not in NEED_OTEL]
    script = "import importlib, sys; print(len([importlib.import_module(name) for name in sys.argv[1:]]))"

    printed = run(python, "-W", "error", "-c", script, "tidewheel", *plain, cwd=site.parent)

    assert printed == f"{len(plain) + 1}\n"


def test_who_asks_for_telemetry_without_the_extra_is_told_and_served(site: Path, tmp_path: Path) -> None:
    """A client says what to install, and connects."""
    script = """
import asyncio, logging, os, sys
from tidewheel import Client

logging.basicConfig(stream=sys.stdout)
os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:9"
client = asyncio.run(Client.connect("sqlite:///t.db"))
print(client.namespace)
"""

    printed = run(site.parents[2] / "bin" / "python", "-c", script, cwd=tmp_path)

    assert "pip install 'tidewheel[otel]'" in printed
    assert printed.splitlines()[-1] == "default"


def test_the_command_runs(site: Path) -> None:
    """The installed ``tidewheel`` knows its version."""
    printed = run(site.parents[2] / "bin" / "tidewheel", "--version", cwd=site.parent)

    assert printed.split()[-1] == version()
