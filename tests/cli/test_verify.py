"""``tidewheel journal verify``: every breach on a line, and never a traceback."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tidewheel.cli.exit_codes import ExitCode

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_a_valid_journal_prints_nothing_but_a_summary(process: Run) -> None:
    """Standard output is for breaches, and there are none."""
    ran = process("journal", "verify", "--file", "continued.json")

    assert (ran.returncode, ran.stdout) == (ExitCode.OK, "")
    assert ran.stderr == "continued.json: 7 events, valid\n"


def test_each_breach_is_a_line_of_json(process: Run, folder: Path) -> None:
    """Rule, event and message, in the order of the events."""
    journal = json.loads((folder / "completed.json").read_bytes())
    del journal[2]
    (folder / "hole.json").write_text(json.dumps(journal))

    ran = process("journal", "verify", "--file", "hole.json")

    breaches = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.returncode == ExitCode.FINDING
    assert "S-1" in [breach["rule"] for breach in breaches]
    assert all(list(breach) == ["rule", "run_seq", "message"] for breach in breaches)
    assert ran.stderr == f"hole.json: {len(breaches)} breaches\n"


def test_a_journal_can_come_from_standard_input(run: Run, folder: Path) -> None:
    """``-`` is standard input."""
    ran = run("journal", "verify", "--file", "-", stdin=(folder / "failed.json").read_bytes())

    assert (ran.returncode, ran.stdout) == (ExitCode.OK, "")
    assert ran.stderr.startswith("standard input: ")


@pytest.mark.parametrize("flags", [[], ["--json"]])
@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe\x00", b"{}", b"[1]", b"[" * 100_000, b'[{"run_seq": 1e400, "type": "X"}]', b"[]"]
)
def test_any_bytes_are_answered(run: Run, data: bytes, flags: list[str]) -> None:
    """What cannot be read is a breach like any other; an empty journal breaks S-2."""
    ran = run("journal", "verify", "--file", "-", *flags, stdin=data)

    breaches = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.returncode == ExitCode.FINDING
    assert breaches[0]["rule"] == ("S-2" if data == b"[]" else "FORMAT")


def test_json_leaves_out_the_summary(run: Run) -> None:
    """With --json nothing is written for people."""
    valid = run("journal", "verify", "--file", "completed.json", "--json")
    broken = run("journal", "verify", "--file", "-", "--json", stdin=b"?")

    assert (valid.stdout, valid.stderr) == ("", "")
    assert broken.stderr == ""


@pytest.mark.parametrize(
    ("file", "code", "kind", "message"),
    [
        ("none.json", ExitCode.NOT_FOUND, "NotFound", "there is no file 'none.json'"),
        ("shop.py/x", ExitCode.NOT_FOUND, "NotFound", "there is no file 'shop.py/x'"),
        (".", ExitCode.INVALID, "InvalidRequest", "file '.' cannot be read: Is a directory"),
        ("a\0b", ExitCode.INVALID, "InvalidRequest", "file 'a\\x00b' cannot be read: embedded null byte"),
    ],
)
def test_a_file_that_cannot_be_read_is_no_breach(
    run: Run, file: str, code: ExitCode, kind: str, message: str
) -> None:
    """Whether a journal is valid is not known where there is none."""
    plain = run("journal", "verify", "--file", file)
    as_json = run("journal", "verify", "--file", file, "--json")

    assert (plain.returncode, plain.stdout) == (code, "")
    assert plain.stderr.splitlines()[0] == f"error: {message}"
    assert (as_json.returncode, as_json.stdout) == (code, "")
    assert json.loads(as_json.stderr) == {"error": {"type": kind, "message": message}}
