"""The story that ``make run`` tells: its claims hold, and nothing is left of it."""

from __future__ import annotations

import io
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from examples import story as example

ROOT = Path(__file__).resolve().parents[2]
STORY = ROOT / "examples" / "story.py"
SECONDS_MAX = 55
ESCAPE = "\033["


@contextmanager
def telling(
    tmp_path: Path, *options: str, output: int = subprocess.PIPE, **more: str
) -> Iterator[subprocess.Popen[str]]:
    """Run the story in a session of its own, so that whatever it leaves behind can be found."""
    environment = {
        "HOME": str(tmp_path),
        "PATH": os.defpath,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONUNBUFFERED": "1",
        "TIDEWHEEL_NAMESPACE": "of-the-shell",
        "TIDEWHEEL_QUEUES": "of-the-shell",
        "TMPDIR": str(tmp_path),
        **more,
    }
    with subprocess.Popen(
        [sys.executable, str(STORY), *options],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def told(tmp_path: Path, *options: str, said: str = "") -> str:
    """Run the story to its end, with *said* on its input; return what it printed."""
    with telling(tmp_path, *options) as process:
        printed, _ = process.communicate(said, timeout=SECONDS_MAX)
    assert process.returncode == 0, printed
    assert_nothing_is_left(process, tmp_path)
    return printed


def assert_nothing_is_left(process: subprocess.Popen[str], tmp_path: Path) -> None:
    """No process of the story's session, and no file of it."""
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    assert list(tmp_path.iterdir()) == []


def steps(printed: str) -> list[str]:
    """The numbered steps, which have to be numbered from one without a gap."""
    found = [(int(match[1]), match[2]) for match in re.finditer(r"^ ?(\d+)\. (.*)$", printed, re.MULTILINE)]
    assert [number for number, _ in found] == list(range(1, len(found) + 1))
    return [text for _, text in found]


def test_a_worker_is_killed_and_nobody_is_charged_twice(tmp_path: Path) -> None:
    """The steps tell of a kill in the middle of the shipping, and what was checked holds."""
    printed = told(tmp_path)

    texts = steps(printed)
    beginnings = ["An order", "A worker", "The order waits", "Approved", "kill -9 of worker", "A new worker"]
    assert all(text.startswith(start) for text, start in zip(texts, beginnings, strict=False))
    killed, newer = (re.search(r"\d+", text.partition("(")[0]) for text in (texts[4], texts[5]))
    assert killed is not None
    assert newer is not None
    assert killed[0] != newer[0]
    assert "payment is not charged again (charges in the ledger: 1)." in printed
    assert re.search(r"ship .*done, 2 attempts", printed)
    assert re.search(r"times the card was charged +1  ok", printed)
    assert "WRONG" not in printed
    assert ESCAPE not in printed


def test_the_approval_can_be_given_at_the_terminal(tmp_path: Path) -> None:
    """With --interactive the story asks, and goes on with what it is told."""
    printed = told(tmp_path, "--interactive", said="y\n")

    assert "Do you approve it?" in printed
    assert "Shipped." in printed
    assert re.search(r"how the order ended +shipped  ok", printed)


def test_a_refusal_at_the_terminal_undoes_the_order(tmp_path: Path) -> None:
    """Then nobody is killed: the money and the items go back, the newest first."""
    printed = told(tmp_path, "--interactive", said="n\n")

    assert "In the ledger: reserve, charge, refund, release." in printed
    assert "kill -9" not in printed
    assert re.search(r"how the order ended +cancelled  ok", printed)


@pytest.mark.parametrize(
    ("said", "expected"), [("", True), ("\n", True), ("Yes\n", True), ("n\n", False), (" NO\n", False)]
)
def test_anything_but_a_no_is_a_yes(said: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An input that ends before it says anything is a yes too."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(said))

    answer = example.approved(example.Terminal(), interactive=True)

    assert answer is expected


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)], ids=["ctrl-c", "term"]
)
def test_a_story_that_is_interrupted_leaves_nothing_running(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    """Its worker is ended and its folder removed, whoever stops it."""
    with telling(tmp_path) as process:
        read_until(process, "waits for a person")
        process.send_signal(number)
        printed, _ = process.communicate(timeout=SECONDS_MAX)

    assert process.returncode == code, printed
    assert_nothing_is_left(process, tmp_path)


def read_until(process: subprocess.Popen[str], text: str) -> None:
    """Read what the story prints until it has printed *text*."""
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"the story ended before it said {text!r}")


def test_a_terminal_gets_colours_unless_told_not_to(tmp_path: Path) -> None:
    """Words are coloured on a terminal, and NO_COLOR turns that off."""
    coloured = on_a_terminal(tmp_path)
    plain = on_a_terminal(tmp_path, NO_COLOR="1")

    assert ESCAPE in coloured
    assert ESCAPE not in plain


def on_a_terminal(tmp_path: Path, **more: str) -> str:
    """Begin the story on a terminal; return what it prints up to the approval, and interrupt it there."""
    ours, its = os.openpty()
    printed = b""
    deadline = time.monotonic() + SECONDS_MAX
    with telling(tmp_path, output=its, TERM="xterm", **more) as process:
        os.close(its)
        while b"waits for a person" not in printed and time.monotonic() < deadline:
            if select.select([ours], [], [], 1.0)[0]:
                printed += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=SECONDS_MAX) == 130
    os.close(ours)
    return printed.decode("utf-8")


def found(done: dict[str, int], *, status: str = "shipped", parcels: int = 1) -> list[str]:
    """What the story would say is wrong with an order that was approved."""
    result = {"status": status, "told": ["a", "b", "c"]}
    made = example.checks(result, [], Counter(done), parcels=parcels, approved=True)
    return [check.what for check in made if not check.holds and "rules" not in check.what]


GOOD = {"reserve": 1, "charge": 1, "ship": 2}


@pytest.mark.parametrize(
    ("done", "status", "parcels", "wrong"),
    [
        (GOOD, "shipped", 1, []),
        (GOOD | {"charge": 2}, "shipped", 1, ["times the card was charged"]),
        (GOOD | {"refund": 1}, "cancelled", 1, ["how the order ended", "times the money was given back"]),
        (GOOD, "shipped", 2, ["parcels the carrier knows, by their keys"]),
        (GOOD | {"ship": 1}, "shipped", 1, ["calls of the carrier, the killed one among them"]),
    ],
)
def test_what_went_wrong_is_found(done: dict[str, int], status: str, parcels: int, wrong: list[str]) -> None:
    """A second charge, a refund, a second parcel and a kill that hit nothing are all noticed."""
    assert found(done, status=status, parcels=parcels) == wrong


def test_a_wrong_check_fails_the_story_with_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 1, and the message says what was found in place of what."""

    def play(terminal: example.Terminal, *, interactive: bool) -> None:
        example.summary(terminal, [example.Check("times the card was charged", 1, 2)])

    monkeypatch.setattr(example, "play", play)
    monkeypatch.setattr(sys, "argv", ["story.py"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    code = example.main()

    assert code == 1
    assert "FAILED: times the card was charged: 2, not 1" in capsys.readouterr().err
