"""The example that ``make run`` runs: its claims hold, wherever its output goes."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import pytest

from tidewheel.journal.events import Entry, InvokeScheduled
from tidewheel.testing import Environment, verify

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "order.py"
SECONDS_MAX = 60
COLUMNS = 80
ESCAPE = "\033["

pytestmark = pytest.mark.skipif(not EXAMPLE.exists(), reason="an unpacked sdist has no examples")


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    """Return an environment with nothing of the user's in it."""
    return {
        "HOME": str(tmp_path),
        "PATH": os.defpath,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(ROOT / "src"),
        "TMPDIR": str(tmp_path),
        **more,
    }


@contextmanager
def session(output: int, tmp_path: Path, **more: str) -> Iterator[subprocess.Popen[str]]:
    """Run the example in a session of its own, so that what it leaves behind can be found."""
    with subprocess.Popen(
        [sys.executable, str(EXAMPLE)],
        cwd=ROOT,
        env=environment(tmp_path, **more),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        start_new_session=True,
    ) as process:
        yield process


def piped(tmp_path: Path, **more: str) -> str:
    """Run the example with its output in a pipe; return what it printed."""
    with session(subprocess.PIPE, tmp_path, **more) as process:
        printed, _ = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, printed
    return printed


def on_a_terminal(tmp_path: Path, **more: str) -> str:
    """Run the example on a terminal; return what it printed."""
    ours, its = os.openpty()
    printed = b""
    deadline = time.monotonic() + SECONDS_MAX
    with session(its, tmp_path, TERM="xterm", **more) as process:
        os.close(its)
        while time.monotonic() < deadline and select.select([ours], [], [], 1.0)[0]:
            try:
                some = os.read(ours, 65536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not some:
                break
            printed += some
        assert process.wait(timeout=SECONDS_MAX) == 0
    os.close(ours)
    return printed.decode("utf-8")


def tasks_of(journal: list[Entry]) -> list[str]:
    """Return the names of the steps that *journal* asked for, in order."""
    return [entry.event.function_name for entry in journal if isinstance(entry.event, InvokeScheduled)]


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example as a module, without its story."""
    spec = importlib.util.spec_from_file_location("order_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The story as a pipe gets it."""
    return piped(tmp_path_factory.mktemp("story"))


def test_the_story_is_told_in_numbered_steps(story: str) -> None:
    """Steps are numbered from one without a gap, and the crash is in the middle."""
    steps = [(int(found[1]), found[2]) for found in re.finditer(r"^ ?(\d+)\. (.*)$", story, re.MULTILINE)]

    assert [number for number, _ in steps] == list(range(1, len(steps) + 1))
    crashes = [number for number, text in steps if text.startswith("CRASH")]
    assert len(crashes) == 1
    assert 1 < crashes[0] < len(steps)


def test_the_journal_grows_line_by_line(story: str) -> None:
    """Each entry of the parent's journal is shown once, in order, before and after the crash."""
    shown = [int(found) for found in re.findall(r"^   +(\d+)  \d\d Jan ", story, re.MULTILINE)]
    before = story[: story.index("CRASH")]

    assert shown == list(range(len(shown)))
    assert 0 < len(re.findall(r"^   +\d+  \d\d Jan ", before, re.MULTILINE)) < len(shown)


def test_the_crash_changes_nothing(story: str) -> None:
    """No task body runs again, and outcome, journals and rules are as without a crash."""
    rows = re.findall(r"^    (\w+) +(\d+) +(\d+)$", story, re.MULTILINE)

    assert "Tasks executed again: 0. New events: 0." in story
    assert {name: count for name, count, _ in rows}["charge"] == "2"
    assert [row for row in rows if row[1] != row[2]] == []
    assert "outcome:  the same, delivered" in story
    assert "journals: the same" in story
    assert story.count("verify: 0 breaches; replay: completed") == 2


def test_the_story_fits_a_terminal_of_80_columns(story: str) -> None:
    """Only the commands to copy may be longer, since they name files."""
    told = story[: story.index("Try:")]

    assert [line for line in told.splitlines() if len(line) > COLUMNS] == []


def test_the_commands_name_the_journals_that_were_kept(tmp_path: Path) -> None:
    """The story ends with commands, and the files they name are journals without a breach."""
    printed = piped(tmp_path)

    lines = printed[printed.index("Try:") :].splitlines()
    found = [
        re.search(r"tidewheel (journal verify|graph|replay \S+:app) --file (\S+)$", line) for line in lines
    ]
    kept = {match[1].split()[0]: Path(match[2]) for match in found if match is not None}
    assert sorted(kept) == ["graph", "journal", "replay"]
    for journal in kept.values():
        assert journal.is_relative_to(tmp_path)
        assert json.loads(journal.read_bytes())[0]["type"] == "ExecutionStarted"
        assert verify(journal.read_bytes()) == []


def test_a_pipe_gets_no_colours(story: str) -> None:
    """What is not a terminal gets plain text."""
    assert ESCAPE not in story


def test_a_terminal_gets_colours_unless_told_not_to(tmp_path: Path) -> None:
    """NO_COLOR turns colours off; the words are the same either way."""
    coloured = on_a_terminal(tmp_path)
    plain = on_a_terminal(tmp_path, NO_COLOR="1")

    assert ESCAPE in coloured
    assert ESCAPE not in plain
    told = plain[: plain.index("Try:")]
    assert re.sub(r"\033\[[\d;]+m", "", coloured).startswith(told)


def test_nothing_is_left_running(tmp_path: Path) -> None:
    """When the example has ended, no process of its session is left."""
    with session(subprocess.DEVNULL, tmp_path) as process:
        assert process.wait(timeout=SECONDS_MAX) == 0

    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


async def test_an_order_that_nobody_approves_is_undone(order: ModuleType) -> None:
    """Three days without an answer are a no: the items go back, and so does the money."""
    async with Environment(order.app) as env:
        run = await env.client.start(order.fulfil, order.ORDER)
        began = env.now

        outcome = await run.result()

        assert outcome == order.Outcome("refused")
        assert timedelta(days=3) <= env.now - began < timedelta(days=3, minutes=1)
        assert tasks_of(await run.journal())[-3:] == ["remind_desk", "release", "refund"]


async def test_an_order_that_is_out_of_stock_is_refunded_at_once(order: ModuleType) -> None:
    """A lack of stock reaches the workflow as itself, and is not tried again."""
    async with Environment(order.app) as env:
        run = await env.client.start(order.fulfil, order.Order("1002", "kettle", 101, 1))

        outcome = await run.result()

        assert outcome == order.Outcome("out of stock")
        assert tasks_of(await run.journal()) == ["charge", "reserve", "refund"]


async def test_an_order_that_cannot_be_shipped_is_refunded(order: ModuleType) -> None:
    """A child run that fails is a step that fails."""
    async with Environment(order.app) as env:
        env.fake(order.book_carrier, raises=ConnectionError("no answer"))
        run = await env.client.start(order.fulfil, order.ORDER)
        await run.signal("approval", order.Approval(approved=True, desk="desk-3"))

        outcome = await run.result()

        assert outcome == order.Outcome("not shipped")
        assert tasks_of(await run.journal())[-2:] == ["ship", "refund"]
