"""What the pages show is what happens: their Python is run, their commands are executed.

A page is followed from top to bottom in a folder of its own, as a reader would. Every
``python`` block is saved as a file and run; in ``console`` blocks each line that begins
with ``$`` is executed, if it is ``tidewheel``, ``python`` or a ``kill`` of what the page itself
started, and what follows must be what it prints. What may differ from one time to the next:

* ``...`` stands for any text, on a line of its own for any lines;
* ``05:48:25`` stands for any time of day, ``1.065 s`` for any duration.

A comment above a block says more about it, and readers do not see it:

* ``<!-- file: orders.py -->`` saves the block under that name;
* ``<!-- later -->`` only saves the block, which a command further down runs;
* ``<!-- continues -->`` puts the code of the block before in front of it;
* ``<!-- exit: 1 -->`` names the exit code that the commands have, if not 0;
* ``<!-- background: 4711 -->`` has the block's one command go on in the background once it has printed what
  the block shows. For the page 4711 is its id: ``kill -9 4711`` ends it, and so does the end of the page;
* ``<!-- eventually -->`` repeats each command until it prints what the block shows;
* ``<!-- on servers -->`` on a page gives it a Postgres database and a RabbitMQ of its own, in
  ``TIDEWHEEL_STORE`` and ``TIDEWHEEL_BROKER``.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
TIDEWHEEL = "import sys; sys.argv[0] = 'tidewheel'; from tidewheel.cli.main import main; sys.exit(main())"
COMMAND_SECONDS_MAX = 60
PAUSE_S = 0.05

_FENCE = re.compile(r"^```(?P<language>\w*)\s*$")
_DIRECTIVE = re.compile(
    r"^<!-- (?P<name>file|later|continues|exit|background|eventually)(?:: (?P<value>[\w.-]+))? -->$"
)
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_ANYTHING = re.compile(r"\.\.\.|\b\d\d:\d\d:\d\d| *\b\d+\.\d+ s\b")
_KILL = re.compile(r"kill (?P<is_hard>-9 )?(?P<process>\d+)")

pytestmark = pytest.mark.skipif(
    not (ROOT / "Makefile").exists(), reason="an unpacked sdist has no folders at the root"
)


# Reading a page.


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

    def fits(self, printed: str) -> bool:
        """Tell whether *printed* is all that the page shows, and nothing else."""
        return re.fullmatch(as_pattern(self.expected), printed) is not None

    def begins(self, printed: str) -> bool:
        """Tell whether *printed* begins with what the page shows."""
        return re.match(as_pattern(self.expected), printed) is not None

    def differs_from(self, printed: str) -> str:
        """Say what is wrong with *printed*."""
        return f"$ {self.line}\nprinted:\n{printed}\nthe page has:\n{self.expected}"


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
            parts.append(_line_pattern(line.rstrip()) + r"[ ]*\n")
    return "".join(parts)


def _line_pattern(line: str) -> str:
    pattern, end = "", 0
    for found in _ANYTHING.finditer(line):
        pattern += re.escape(line[end : found.start()])
        if found[0] == "...":
            pattern += ".*?"
        elif ":" in found[0]:
            pattern += r"\d\d:\d\d:\d\d"
        else:
            pattern += r" *\d[\d. hm]*s"
        end = found.end()
    return pattern + re.escape(line[end:])


# Doing what it says.


class Reader:
    """Somebody who follows a page in a folder of their own, and leaves no process behind."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        self._folder = folder
        self._settings = settings or {}
        self._code = ""
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # The settings of a checkout around the folder do not count.
        (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")

    def follow(self, page: str) -> None:
        """Do what *page* shows, from top to bottom."""
        try:
            for block in blocks(page):
                if block.language == "python":
                    self._run_python(block)
                elif block.language == "console":
                    self._run_console(block)
        finally:
            for process in self._processes.values():
                process.kill()
                process.wait()

    def _run_python(self, block: Block) -> None:
        """Save *block* and run it, unless that is for later; its code is kept for what continues it."""
        self._code = self._code + "\n" + block.text if "continues" in block.directives else block.text
        saved = self._folder / block.directives.get("file", f"line_{block.line}.py")
        saved.write_text(self._code, "utf-8")
        if "later" in block.directives:
            return

        done = self._execute([sys.executable, saved.name])

        assert done.returncode == 0, f"the block of line {block.line} fails:\n{done.stdout}"

    def _run_console(self, block: Block) -> None:
        exit_code = int(block.directives.get("exit", "0"))
        for command in commands(block):
            if (kill := _KILL.fullmatch(command.line)) is not None:
                self._kill(kill["process"], is_hard=kill["is_hard"] is not None)
                assert not command.expected, f"$ {command.line}: prints nothing"
            elif "background" in block.directives:
                self._start(command, block.directives["background"])
            else:
                self._run(command, exit_code, patience_s=_patience_s(block))

    def _run(self, command: Command, exit_code: int, *, patience_s: float) -> None:
        """Execute *command*, and compare what it prints and how it exits."""
        deadline = time.monotonic() + patience_s
        while True:
            done = self._execute(_words(command.line))
            printed = "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())
            if command.fits(printed) or time.monotonic() > deadline:
                break
        assert command.fits(printed), command.differs_from(printed)
        assert done.returncode == exit_code, f"$ {command.line}: exit code {done.returncode}"

    def _start(self, command: Command, name: str) -> None:
        """Let *command* go on in the background, once it has printed what the page shows."""
        log = self._folder / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                _words(command.line),
                cwd=self._folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        command = replace(command, expected=re.sub(rf"\b{name}\b", str(process.pid), command.expected))
        before = self._processes.setdefault(name, process)
        assert before is process, f"$ {command.line}: process {name} was started before"
        wait_until(lambda: command.begins(log.read_text("utf-8")) or process.poll() is not None)
        printed = log.read_text("utf-8")
        assert command.begins(printed), command.differs_from(printed)
        assert process.poll() is None, f"$ {command.line}: ended by itself, with {process.returncode}"

    def _kill(self, name: str, *, is_hard: bool) -> None:
        """End a process that the page started: at once, or as it sees fit."""
        assert name in self._processes, f"kill {name}: the page started no such process"
        process = self._processes[name]
        assert process.poll() is None, f"kill {name}: it has ended, with {process.returncode}"
        process.send_signal(signal.SIGKILL if is_hard else signal.SIGTERM)
        code = process.wait(COMMAND_SECONDS_MAX)
        assert code == (-signal.SIGKILL if is_hard else 0), f"kill {name}: ended with {code}"

    def _execute(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self._folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )

    def _environment(self) -> dict[str, str]:
        """Return what a reader without any settings of their own has."""
        return {
            "COLUMNS": "80",
            "HOME": str(self._folder),
            "NO_COLOR": "1",
            "PATH": os.defpath,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONUTF8": "1",
            **self._settings,
        }


def _patience_s(block: Block) -> float:
    return COMMAND_SECONDS_MAX if "eventually" in block.directives else 0.0


def _words(line: str) -> list[str]:
    """Return what to execute for a command *line*."""
    program, *arguments = shlex.split(line)
    assert program in ("python", "tidewheel"), f"$ {line}: this test cannot run {program}"
    return [sys.executable, *([] if program == "python" else ["-c", TIDEWHEEL]), *arguments]


def wait_until(happened: Callable[[], bool]) -> None:
    """Wait until something *happened*, but not for ever."""
    deadline = time.monotonic() + COMMAND_SECONDS_MAX
    while not happened() and time.monotonic() < deadline:
        time.sleep(PAUSE_S)


# The pages.


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_does_what_it_says(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Every block of Python runs, and every command prints what the page shows."""
    page, settings = path.read_text("utf-8"), {}
    if "<!-- on servers -->" in page.splitlines():
        settings["TIDEWHEEL_STORE"] = request.getfixturevalue("fresh_postgres")
        settings["TIDEWHEEL_BROKER"] = request.getfixturevalue("fresh_rabbitmq")

    Reader(tmp_path, settings).follow(page)


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


# The test itself.

SLEEPER = "python -u -c 'import time; print(1); print(2); time.sleep(60)'"
NAMED = "python -u -c 'import os, time; print(f\"I am {os.getpid()}\"); time.sleep(60)'"


@pytest.mark.parametrize(
    "page",
    [
        "```python\nassert False\n```\n",
        "```python\nx = 1\n```\n\n```python\nassert x == 1\n```\n",
        "```console\n$ python -c 'print(1)'\n2\n```\n",
        "```console\n$ python -c 'print(1)'\n1\n2\n```\n",
        "```console\n$ python -c 'print(\"at noon\")'\nat 05:48:25\n```\n",
        "```console\n$ python -c 'print(\"in 2 m\")'\nin 1.065 s\n```\n",
        "```console\n$ python -c 'raise SystemExit(1)'\n```\n",
        "<!-- exit: 1 -->\n```console\n$ python -c 'print(1)'\n1\n```\n",
        "<!-- background: 4711 -->\n```console\n$ python -c 'print(1)'\n2\n```\n",
        "<!-- background: 4711 -->\n```console\n$ python -c ''\n```\n\n```console\n$ kill 4711\n```\n",
        f"<!-- background: 4711 -->\n```console\n$ {SLEEPER}\n1\n```\n\n```console\n$ kill 4711\n```\n",
        "```console\n$ kill -9 4711\n```\n",
        "```console\n$ rm -r .\n```\n",
        "```python\nx = 1\n",
        "<!-- file: a.py -->\n<!-- later -->\n```python\nx\n```\n\n```console\n$ python a.py\n```\n",
    ],
)
def test_a_page_that_says_something_untrue_fails(page: str, tmp_path: Path) -> None:
    """Wrong code, output, exit codes and endings are noticed, and so are commands that are not run."""
    with pytest.raises(AssertionError):
        Reader(tmp_path).follow(page)


@pytest.mark.parametrize(
    "page",
    [
        "```python\nx = 1\n```\n\n<!-- continues -->\n```python\nassert x == 1\n```\n",
        "<!-- file: a.py -->\n```python\nprint(1)\n```\n\n```console\n$ python a.py\n1\n```\n",
        "<!-- file: a.py -->\n<!-- later -->\n```python\nassert False\n```\n",
        "<!-- exit: 3 -->\n```console\n$ python -c 'print(1); raise SystemExit(3)'\n1\n```\n",
        "```console\n$ python -c 'print(1); print(2); print(\"3 s\")'\n1\n...\n... s\n```\n",
        "```console\n$ python -c 'print(\"11:22:33 after   12.5 s\")'\n05:48:25 after 1.065 s\n```\n",
        f"<!-- background: 4711 -->\n```console\n$ {SLEEPER}\n1\n```\n\n```console\n$ kill -9 4711\n```\n",
        f"<!-- background: 4711 -->\n```console\n$ {SLEEPER}\n1\n2\n```\n",
        f"<!-- background: 4711 -->\n```console\n$ {NAMED}\nI am 4711\n```\n",
        "```sh\n$ make run\n```\n",
    ],
)
def test_the_conventions_of_a_page_hold(page: str, tmp_path: Path) -> None:
    """Blocks continue, are saved or kept for later, go on in the background, and leave out what varies."""
    Reader(tmp_path).follow(page)


def test_a_command_is_repeated_until_it_prints_what_the_page_shows(tmp_path: Path) -> None:
    """What takes a while to come about is waited for."""
    code = (
        "from pathlib import Path\np = Path('n')\np.write_text(p.read_text() + 'x' if p.exists() else 'x')\n"
    )
    page = (
        f"<!-- file: a.py -->\n```python\n{code}print(len(p.read_text()))\n```\n\n"
        "<!-- eventually -->\n```console\n$ python a.py\n4\n```\n"
    )

    Reader(tmp_path).follow(page)
