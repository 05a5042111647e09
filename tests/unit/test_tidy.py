"""The house rules that no linter knows, checked like any other behaviour.

A breach names its file and line, so the failing assert is the message. The rules
themselves are explained in CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import fnmatch
import io
import os
import re
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "tidewheel"
LINES_MAX = 500
FUNCTION_LINES_MAX = 70
VAGUE_NAMES = {"util", "utils", "common", "helper", "helpers", "manager", "managers", "misc"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")

#: Unfinished-looking words that have to stay: (file, word) and the reason.
UNFINISHED_ALLOWED: dict[tuple[str, str], str] = {}

# Written in halves, so that this file passes its own rules.
REGISTRIES = [
    "pypi" + ".org",
    "python" + "hosted.org",
    "npmjs" + ".org",
    "npmjs" + ".com",
    "crates" + ".io",
    "deb.debian" + ".org",
    "archive.ubuntu" + ".com",
]
MACHINE_PATH = re.compile(r"(?<![\w.~*-])/" + r"(?:work|root|home)(?![\w-])")
LICENCE_TAG = "SPDX" + "-"

# A comment that silences a checker, and the codes it names; what else the comment says is the reason.
SUPPRESSION = re.compile(
    r"#\s*(?:type:\s*ignore|pyright:\s*ignore|noqa)"
    r"(?P<codes>\[[\w, -]+\]|:\s*[A-Z]+[0-9]+(?:,\s*[A-Z]+[0-9]+)*)?"
)

pytestmark = pytest.mark.skipif(
    not (ROOT / "Makefile").exists(), reason="an unpacked sdist has no folders at the root"
)


@cache
def settings() -> dict[str, Any]:
    """Return pyproject.toml as read."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def ignored(name: str) -> bool:
    """Tell whether .gitignore leaves *name* out; its patterns are plain names, so no git is needed."""
    lines = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    patterns = [line.rstrip("/") for line in lines if line and not line.startswith("#")]
    return name == ".git" or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


@cache
def files() -> tuple[Path, ...]:
    """Return every file of the checkout where it really is: links are not followed."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if not ignored(name))
        paths = [Path(folder, name) for name in sorted(names) if not ignored(name)]
        found += [path for path in paths if not path.is_symlink()]
    return tuple(found)


def shown(path: Path) -> str:
    """Return *path* as people write it."""
    return path.relative_to(ROOT).as_posix()


@cache
def root_folders() -> frozenset[str]:
    """Return the folders at the root that hold something, hidden ones aside."""
    tops = {path.relative_to(ROOT).parts[0] for path in files() if path.parent != ROOT}
    return frozenset(top for top in tops if not top.startswith("."))


@cache
def packages() -> frozenset[str]:
    """Return the product's folders: those of the root that are packages."""
    return frozenset(name for name in root_folders() if (ROOT / name / "__init__.py").exists())


def python_files() -> list[Path]:
    """Return every Python file of the checkout."""
    return [path for path in files() if path.suffix == ".py"]


def product_files() -> list[Path]:
    """Return the Python files that users install."""
    return [path for path in python_files() if path.relative_to(ROOT).parts[0] in {*packages(), "src"}]


def text_files() -> Iterator[tuple[Path, str]]:
    """Yield every file that is text, with its text."""
    for path in files():
        try:
            yield path, path.read_text("utf-8")
        except UnicodeDecodeError:
            continue


@cache
def tree(path: Path) -> ast.Module:
    """Return *path*, parsed."""
    return ast.parse(path.read_text("utf-8"), filename=str(path))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function and method in *path*."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def unexplained(source: str) -> Iterator[int]:
    """Yield the lines of *source* that silence a checker without a code or without a reason."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        number = token.start[0]
        above = lines[number - 2].strip() if number > 1 else ""
        codes = [match["codes"] for match in SUPPRESSION.finditer(token.string)]
        reason_here = re.search(r"\w{2}", SUPPRESSION.sub("", token.string))
        reason_above = above.startswith("#") and not SUPPRESSION.search(above)
        if codes and not (all(codes) and (reason_here or reason_above)):
            yield number


def table_of_folders(text: str) -> list[str]:
    """Return the folders named in the first column of the tables of *text*."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    return [name for row in rows for name in re.findall(r"`([\w-]+)/`", row)]


def test_each_package_has_its_link_and_nothing_else_is_in_src() -> None:
    """``src/tidewheel`` holds the front door, ``py.typed`` and one link for each folder."""
    entries = {path.name: path for path in PACKAGE.iterdir() if not ignored(path.name)}
    links = {name: str(path.readlink()) for name, path in entries.items() if path.is_symlink()}

    assert links == {name: f"../../{name}" for name in packages()}
    assert entries.keys() - links.keys() == {"__init__.py", "py.typed"}


def test_each_link_leads_to_a_package() -> None:
    """A link to a folder without ``__init__.py`` would make a namespace package by accident."""
    links = [path for path in PACKAGE.iterdir() if path.is_symlink()]

    assert [path.name for path in links if not (path / "__init__.py").is_file()] == []


def test_pyright_is_told_of_each_link() -> None:
    """Pyright does not walk through links: one that is not named is silently not checked."""
    named = set(settings()["tool"]["pyright"]["include"])

    linked = {f"src/tidewheel/{name}" for name in packages()}
    assert named == linked | {"src/tidewheel", "tests", "benchmarks", "examples", "deploy"}


def test_ruff_refuses_each_folder_as_a_top_level_import() -> None:
    """From the root ``import journal`` works by accident, and nowhere else."""
    banned = settings()["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]

    assert packages() - banned.keys() == set()


def test_coverage_measures_each_folder() -> None:
    """A folder that is not listed would count as if it were not there."""
    measured = settings()["tool"]["coverage"]["run"]["source"]

    assert set(measured) == packages() | {"src"}


def test_each_folder_has_its_layer() -> None:
    """A folder without a layer may import anything."""
    layers = settings()["tool"]["importlinter"]["contracts"][0]["layers"]

    named = {name.strip() for layer in layers for name in layer.split("|")}
    assert named == {f"tidewheel.{name}" for name in packages()}


def test_the_makefile_runs_each_tier() -> None:
    """Every folder of ``tests/`` with tests in it is a tier of ``make test``."""
    line = re.search(r"^TIERS := (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    tests = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")]

    assert line is not None
    assert set(line[1].split()) == {path.parts[0] for path in tests}


def test_ruff_is_never_silenced_without_a_reason() -> None:
    """Each ignore in pyproject.toml has its reason beside it."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    lint = text[text.index("\nignore = [") : text.index("[tool.ruff.lint.flake8-builtins]")]

    entries = [line for line in lint.splitlines() if re.match(r'\s+"[A-Z]+[0-9]*",', line)]
    assert entries
    assert [line for line in entries if not re.search(r"# \S", line)] == []


def test_files_are_short() -> None:
    """A Python file over the limit is two files."""
    lengths = {shown(path): len(path.read_text("utf-8").splitlines()) for path in python_files()}

    assert {name: lines for name, lines in lengths.items() if lines > LINES_MAX} == {}


def test_functions_are_short() -> None:
    """A function of the product fits a screen."""
    lengths = {
        f"{shown(path)}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in product_files()
        for node in functions(path)
    }

    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES_MAX} == {}


def test_names_say_what_is_inside() -> None:
    """A file or folder is named after a thing of the domain."""
    parts = {(part, shown(path)) for path in files() for part in path.relative_to(ROOT).parts}

    assert [name for part, name in sorted(parts) if Path(part).stem.strip("_").lower() in VAGUE_NAMES] == []


def test_modules_say_what_they_are() -> None:
    """Every Python file opens with a docstring."""
    assert [shown(path) for path in python_files() if not ast.get_docstring(tree(path))] == []


def test_tests_say_what_rule_they_hold() -> None:
    """Every test has a docstring, methods and nested ones too."""
    tests = [path for path in python_files() if path.is_relative_to(ROOT / "tests")]
    found = [(path, node) for path in tests for node in functions(path) if node.name.startswith("test_")]

    assert found
    assert [f"{shown(path)}:{node.lineno}" for path, node in found if not ast.get_docstring(node)] == []


def test_checkers_are_never_silenced_without_code_and_reason() -> None:
    """``noqa`` and ``type: ignore`` name a code, and say why there or on the line above."""
    silent = [
        f"{shown(path)}:{line}" for path in python_files() for line in unexplained(path.read_text("utf-8"))
    ]

    assert silent == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("x = 1  # no" + "qa: S603 - our own command\n", []),
        ("x = 1  # no" + "qa: S603, S607  # our own command\n", []),
        ("# Our own command.\nx = 1  # no" + "qa: S603\n", []),
        ("x = 1  # type: " + "ignore[arg-type]  # the stub is wrong\n", []),
        ("x = 1  # no" + "qa: S603\n", [1]),
        ("x = 1  # no" + "qa because it is fine\n", [1]),
        ("x = 1  # type: " + "ignore\n", [1]),
        ("x = 1  # type: " + "ignore[arg-type]  # no" + "qa: S603\n", [1]),
        ("x = '# no" + "qa'\n", []),
    ],
)
def test_the_rule_on_silencing_finds_what_it_should(source: str, lines: list[int]) -> None:
    """A code without a reason, a reason without a code, and neither, are all breaches."""
    assert list(unexplained(source)) == lines


def test_the_product_is_finished() -> None:
    """What is not built yet is not there at all: no reminders, no stubs."""
    found = {
        (shown(path), match[0])
        for path in product_files()
        for match in UNFINISHED.finditer(path.read_text("utf-8"))
    }

    assert found - UNFINISHED_ALLOWED.keys() == set()
    assert UNFINISHED_ALLOWED.keys() - found == set()


def test_no_cancel_is_swallowed_by_wait_for() -> None:
    """On Python 3.11 it loses a cancel that comes together with its result: ``asyncio.timeout`` does not."""
    callers = {shown(path) for path in product_files() if "asyncio.wait_for" in path.read_text("utf-8")}

    assert callers == {"replay/steady.py"}, "that one module evens it out inside workflows"


def test_no_file_names_a_registry_or_a_machine() -> None:
    """Where packages come from and where a checkout lies is each user's own business."""
    breaches = [
        f"{shown(path)}:{number}"
        for path, text in text_files()
        for number, line in enumerate(text.splitlines(), 1)
        if MACHINE_PATH.search(line) or any(host in line for host in REGISTRIES)
    ]

    assert breaches == []


def test_files_carry_no_licence_header() -> None:
    """LICENSE and pyproject.toml say it once for all files."""
    assert [shown(path) for path, text in text_files() if LICENCE_TAG in text] == []


def test_the_changelog_begins_with_this_version() -> None:
    """A release whose changes are not written down is not a release."""
    versions = re.findall(r"^## \[?([0-9][^\]\s]*)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)

    assert versions[:1] == [settings()["project"]["version"]]


def test_the_map_lists_each_folder_once() -> None:
    """ARCHITECTURE.md has a row for every folder at the root, and for no other."""
    rows = table_of_folders((ROOT / "ARCHITECTURE.md").read_text("utf-8"))

    assert sorted(rows) == sorted(root_folders())
