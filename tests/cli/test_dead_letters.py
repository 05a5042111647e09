"""``tidewheel dlq``: dead letters listed, shown, tried again and let go."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.shelves import COMPLETED, FAILED, WAITING, change
from tidewheel.cli.exit_codes import ExitCode

Run = Callable[..., subprocess.CompletedProcess[str]]

_DIE = (
    "UPDATE tidewheel_outbox"
    " SET attempts = 10, first_error = 'full', last_error = 'still full', dead_at = 1700000000000000"
    " WHERE first_seq = 0 AND run_key = (SELECT run_key FROM tidewheel_runs WHERE run_id = ?)"
)


@pytest.fixture
def dead(shelf: object) -> None:
    """Two runs whose first events are dead letters."""
    for run_id in (COMPLETED, FAILED):
        change(_DIE, run_id)


def listed(run: Run, *arguments: str) -> list[dict[str, Any]]:
    """Return the dead letters that are listed."""
    found: list[dict[str, Any]] = json.loads(run("dlq", "list", "--json", *arguments).stdout)
    return found


@pytest.mark.usefixtures("shelf")
def test_where_nothing_is_dead_nothing_is_listed(run: Run) -> None:
    """That is no error."""
    ran = run("dlq", "list")

    assert (ran.returncode, ran.stdout, ran.stderr) == (ExitCode.OK, "", "0 dead letters\n")


@pytest.mark.usefixtures("dead")
def test_dead_letters_are_listed_with_why(run: Run) -> None:
    """A line each, for people."""
    ran = run("dlq", "list")

    head, *lines = ran.stdout.splitlines()
    assert head.split() == ["DEAD", "LETTER", "WORKFLOW", "DIED", "TRIES", "BEHIND", "WHY"]
    assert [line.split()[0] for line in lines] == [f"{COMPLETED}@0", f"{FAILED}@0"]
    assert all(line.endswith("still full") for line in lines)
    assert ran.stderr == "2 dead letters\n"


@pytest.mark.usefixtures("dead")
def test_dead_letters_are_listed_for_programs(run: Run) -> None:
    """With everything that is known of them; chosen by run, workflow and number."""
    first, second = listed(run)

    assert first["id"] == f"{COMPLETED}@0"
    assert (first["attempts"], first["first_error"], first["last_error"]) == (10, "full", "still full")
    assert first["dead_at"] == "2023-11-14T22:13:20Z"
    assert first["waiting"] >= 1
    assert listed(run, "--run", FAILED) == [second]
    assert listed(run, "--workflow", "total") == [first]
    assert listed(run, "--limit", "1") == [first]
    assert listed(run, "--namespace", "elsewhere") == []


@pytest.mark.usefixtures("dead")
def test_a_dead_letter_is_shown_with_its_events(run: Run) -> None:
    """So that people know what consumers miss."""
    ran = run("dlq", "show", f"{COMPLETED}@0")
    as_json = json.loads(run("dlq", "show", f"{COMPLETED}@0", "--json").stdout)

    assert "last error   still full" in ran.stdout
    assert "event        0 RunStarted" in ran.stdout
    assert as_json["events"][0]["eventType"] == "RunStarted"
    assert as_json["events"][0]["data"] == {"input": [1, 2]}


@pytest.mark.usefixtures("dead")
@pytest.mark.parametrize("verb", ["redrive", "discard"])
def test_dead_letters_that_are_named_are_moved(run: Run, verb: str) -> None:
    """The named one, and no other; its name is printed."""
    ran = run("dlq", verb, f"{FAILED}@0")

    assert (ran.returncode, ran.stdout) == (ExitCode.OK, f"{FAILED}@0\n")
    assert [letter["run_id"] for letter in listed(run)] == [COMPLETED]


@pytest.mark.usefixtures("dead")
@pytest.mark.parametrize("verb", ["redrive", "discard"])
def test_dead_letters_are_chosen_by_what_they_are_of(run: Run, verb: str) -> None:
    """By workflow, by run, or all; a dry run says which, and changes nothing."""
    dry = json.loads(run("dlq", verb, "--all", "--dry-run", "--json").stdout)
    assert dry == {verb: 2, "dry_run": True, "ids": [f"{COMPLETED}@0", f"{FAILED}@0"]}
    assert len(listed(run)) == 2

    assert json.loads(run("dlq", verb, "--workflow", "total", "--json").stdout)[verb] == 1
    assert [letter["run_id"] for letter in listed(run)] == [FAILED]
    assert run("dlq", verb, "--all").returncode == ExitCode.OK
    assert listed(run) == []


@pytest.mark.usefixtures("dead")
@pytest.mark.parametrize("verb", ["redrive", "discard"])
def test_nothing_is_moved_that_was_not_chosen(run: Run, verb: str) -> None:
    """Whoever forgets to say which is asked."""
    ran = run("dlq", verb)

    assert ran.returncode == ExitCode.INVALID
    assert "which dead letters?" in ran.stderr
    both = run("dlq", verb, f"{FAILED}@0", "--all")
    assert both.returncode == ExitCode.INVALID
    assert len(listed(run)) == 2


@pytest.mark.usefixtures("dead")
@pytest.mark.parametrize("verb", ["show", "redrive", "discard"])
@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        (f"{WAITING}@0", ExitCode.NOT_FOUND, "there is no dead letter"),
        (f"{COMPLETED}@1", ExitCode.NOT_FOUND, "there is no dead letter"),
        (COMPLETED, ExitCode.INVALID, "is no dead letter"),
        ("@3", ExitCode.INVALID, "is no dead letter"),
        (f"{COMPLETED}@x", ExitCode.INVALID, "is no dead letter"),
    ],
)
def test_what_is_no_dead_letter_is_refused(run: Run, verb: str, name: str, code: ExitCode, said: str) -> None:
    """And nothing else is moved."""
    ran = run("dlq", verb, name)

    assert (ran.returncode, ran.stdout) == (code, "")
    assert said in ran.stderr
    assert len(listed(run)) == 2
