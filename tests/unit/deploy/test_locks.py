"""What the image installs: pins that are a part of those that everything is tested with."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.unit.deploy.reading import IS_CHECKOUT, ROOT

pytestmark = pytest.mark.skipif(not IS_CHECKOUT, reason="an unpacked sdist has no folders at the root")

Pins = dict[str, tuple[str, frozenset[str]]]


def project() -> dict[str, Any]:
    """Return pyproject.toml as read."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def pins(name: str) -> Pins:
    """Return each package of a lock with its version and its hashes."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text("utf-8")
    found: Pins = {}
    for block in re.split(r"\n(?=\S)", text):
        if not block.startswith("#"):
            package, version = re.split(r"[\s;]", block, maxsplit=1)[0].split("==")
            found[package] = (version, frozenset(re.findall(r"--hash=(sha256:[0-9a-f]{64})", block)))
    return found


@pytest.mark.parametrize("name", ["runtime", "build"])
def test_what_the_image_installs_is_what_was_tested(name: str) -> None:
    """The same versions and the same files as in the development environment."""
    tested, installed = pins("dev"), pins(name)

    assert installed
    assert {package: pin for package, pin in installed.items() if tested.get(package) != pin} == {}


@pytest.mark.parametrize("name", ["dev", "runtime", "build"])
def test_every_pin_has_its_hashes(name: str) -> None:
    """A file that was exchanged on its way is refused."""
    assert [package for package, (_, hashes) in pins(name).items() if not hashes] == []


@pytest.mark.parametrize(
    ("name", "declared"),
    [
        ("runtime", project()["project"]["dependencies"] if IS_CHECKOUT else []),
        ("runtime", project()["project"]["optional-dependencies"]["otel"] if IS_CHECKOUT else []),
        ("build", project()["build-system"]["requires"] if IS_CHECKOUT else []),
    ],
)
def test_everything_declared_is_pinned(name: str, declared: list[str]) -> None:
    """A dependency that was added without ``make lock`` would be missing from the image."""
    found = pins(name)

    for requirement in map(Requirement, declared):
        version, _ = found[canonicalize_name(requirement.name)]
        assert version in requirement.specifier


def test_nothing_of_developers_is_in_the_image() -> None:
    """Test tools are not for production."""
    assert (
        pins("runtime").keys() & {"pytest", "hypothesis", "mypy", "ruff", "django", "flask", "trustme"}
        == set()
    )
