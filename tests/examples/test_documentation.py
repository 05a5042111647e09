"""What the pages show is what happens: their Python is run, their commands are executed.

A page is followed from top to bottom in a folder of its own, as a reader would. Every
``python`` block is saved as a file and run; in ``console`` blocks each line that begins
with ``$ tidewheel`` or ``$ python`` is executed, and what follows must be what it prints.
In expected output ``...`` stands for any text, on a line of its own for any lines.

A comment above a block says more about it, and readers do not see it:

* ``<!-- file: orders.py -->`` saves the block under that name;
* ``<!-- continues -->`` puts the code of the block before in front of it;
* ``<!-- exit: 1 -->`` names the exit code that the commands have, if not 0.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
TIDEWHEEL = "import sys; sys.argv[0] = 'tidewheel'; from tidewheel.cli.main import main; sys.exit(main())"
COMMAND_SECONDS_MAX = 60

_FENCE = re.compile(r"^```(?P<language>\w*)\s*$")
_DIRECTIVE = re.compile(r"^<!-- (?P<name>file|continues|exit)(?:: (?P<value>[\w.-]+))? -->$")
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")

pytestmark = pytest.mark.skipif(
    not (ROOT / "Makefile").exists(), reason="an unpacked sdist has no folders at the root"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of code on a page, with the line it begins on and what comments say of it."""

    language: str
    text: str
    line: int
    directives: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of a ``console`` block and the output it should have."""

    line: str
    expected: str


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of code of *page*."""
    directives: dict[str, str] = {}
    opened: tuple[str, int] | None = None
    inside: list[str] = []
    for number, line in enumerate(page.splitlines(), 1):
        if opened is not None:
            if line == "```":
                text = "".join(f"{each}\n" for each in inside)
                yield Block(language=opened[0], text=text, line=opened[1], directives=directives)
                directives, opened, inside = {}, None, []
            else:
                inside.append(line)
        elif (fence := _FENCE.match(line)) is not None:
            opened = fence["language"], number
        elif (directive := _DIRECTIVE.match(line)) is not None:
            directives = {**directives, directive["name"]: directive["value"] or ""}
    assert opened is None, f"the block of line {opened} is never closed"


def commands(block: Block) -> Iterator[Command]:
    """Yield the commands of a ``console`` block, each with the lines that follow it."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line, _, expected = part.partition("\n")
        yield Command(line=line, expected=expected)


def as_pattern(expected: str) -> str:
    """Return the regular expression of what *expected* allows."""
    parts = []
    for line in expected.splitlines():
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*?".join(re.escape(piece) for piece in line.rstrip().split("...")) + r"[ ]*\n")
    return "".join(parts)


def execute(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run *words* in *folder* as a reader without any settings of their own would."""
    environment = {
        "COLUMNS": "80",
        "HOME": str(folder),
        "NO_COLOR": "1",
        "PATH": os.defpath,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(ROOT / "src"),
    }
    return subprocess.run(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )


def run_python(block: Block, before: str, folder: Path) -> str:
    """Save *block* and run it; return its code, for the block that continues it."""
    code = before + "\n" + block.text if "continues" in block.directives else block.text
    saved = folder / block.directives.get("file", f"line_{block.line}.py")
    saved.write_text(code, "utf-8")

    done = execute([sys.executable, saved.name], folder)

    assert done.returncode == 0, f"the block of line {block.line} fails:\n{done.stdout}"
    return code


def run_command(command: Command, exit_code: int, folder: Path) -> None:
    """Execute *command*, and compare what it prints and how it exits."""
    program, *arguments = shlex.split(command.line)
    assert program in ("python", "tidewheel"), f"$ {command.line}: this test cannot run {program}"
    start = [sys.executable] if program == "python" else [sys.executable, "-c", TIDEWHEEL]

    done = execute([*start, *arguments], folder)

    printed = "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())
    assert re.fullmatch(as_pattern(command.expected), printed), (
        f"$ {command.line}\nprinted:\n{printed}\nthe page has:\n{command.expected}"
    )
    assert done.returncode == exit_code, f"$ {command.line}: exit code {done.returncode}"


def follow(page: str, folder: Path) -> None:
    """Do what *page* shows, from top to bottom, in *folder*."""
    (folder / "pytest.ini").write_text(
        "[pytest]\n", "utf-8"
    )  # the settings of a checkout around it do not count
    code = ""
    for block in blocks(page):
        if block.language == "python":
            code = run_python(block, code, folder)
        elif block.language == "console":
            for command in commands(block):
                run_command(command, int(block.directives.get("exit", "0")), folder)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_does_what_it_says(path: Path, tmp_path: Path) -> None:
    """Every block of Python runs, and every command prints what the page shows."""
    follow(path.read_text("utf-8"), tmp_path)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_with_code_ends_in_a_command(path: Path) -> None:
    """A page that teaches something ends in a command the reader can check it with."""
    languages = [block.language for block in blocks(path.read_text("utf-8"))]

    assert "python" not in languages or languages[-1] == "console"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_links_lead_somewhere(path: Path) -> None:
    """A link to a file of the repository names one that exists."""
    targets = [match["target"] for match in _LINK.finditer(path.read_text("utf-8"))]
    files = [target.partition("#")[0] for target in targets if "://" not in target]

    assert [name for name in files if name and not (path.parent / name).exists()] == []


@pytest.mark.parametrize(
    "page",
    [
        "```python\nassert False\n```\n",
        "```python\nx = 1\n```\n\n```python\nassert x == 1\n```\n",
        "```console\n$ python -c 'print(1)'\n2\n```\n",
        "```console\n$ python -c 'print(1)'\n1\n2\n```\n",
        "```console\n$ python -c 'raise SystemExit(1)'\n```\n",
        "<!-- exit: 1 -->\n```console\n$ python -c 'print(1)'\n1\n```\n",
        "```console\n$ rm -r .\n```\n",
        "```python\nx = 1\n",
    ],
)
def test_a_page_that_says_something_untrue_fails(page: str, tmp_path: Path) -> None:
    """Wrong code, wrong output, a wrong exit code and an unknown command are all noticed."""
    with pytest.raises(AssertionError):
        follow(page, tmp_path)


@pytest.mark.parametrize(
    "page",
    [
        "```python\nx = 1\n```\n\n<!-- continues -->\n```python\nassert x == 1\n```\n",
        "<!-- file: a.py -->\n```python\nprint(1)\n```\n\n```console\n$ python a.py\n1\n```\n",
        "<!-- exit: 3 -->\n```console\n$ python -c 'print(1); raise SystemExit(3)'\n1\n```\n",
        "```console\n$ python -c 'print(1); print(2); print(\"3 s\")'\n1\n...\n... s\n```\n",
        "```sh\n$ make run\n```\n",
    ],
)
def test_the_conventions_of_a_page_hold(page: str, tmp_path: Path) -> None:
    """Blocks continue, are saved, may exit otherwise, and leave out what varies."""
    follow(page, tmp_path)
