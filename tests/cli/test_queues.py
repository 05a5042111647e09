"""``tidewheel queue``: limits set, listed and taken away, and what becomes of starts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from tidewheel.cli.exit_codes import ExitCode

Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.usefixtures("shelf")


def test_where_nothing_is_limited_nothing_is_listed(run: Run) -> None:
    """That is no error."""
    ran = run("queue", "list")

    assert (ran.returncode, ran.stdout, ran.stderr) == (ExitCode.OK, "", "0 queues have a limit\n")


def test_a_limit_is_set_and_listed(run: Run) -> None:
    """For people, and with everything for programs."""
    run("queue", "limit", "reports", "--max-running", "2", "--max-pending", "7", "--overload", "delay")

    head, line = run("queue", "list").stdout.splitlines()
    (found,) = json.loads(run("queue", "list", "--json").stdout)

    assert head.split() == ["QUEUE", "RUNNING", "QUEUED", "OVERLOAD", "PAUSE"]
    assert line.split() == ["reports", "0", "of", "2", "0", "of", "7", "delay", "5", "s"]
    assert found == {
        "queue": "reports",
        "running": 0,
        "max_running": 2,
        "pending": 0,
        "max_pending": 7,
        "overload": "delay",
        "pause_s": 5.0,
    }


def test_a_start_that_is_refused_says_when_to_come_again(run: Run) -> None:
    """Scripts see it by the exit code; nothing was started."""
    run("queue", "limit", "narrow", "--max-running", "0", "--overload", "reject", "--pause", "2")

    ran = run("run", "start", "order", "--queue", "narrow", "--run-id", "late", "--json")
    shown = run("run", "show", "late")

    assert (ran.returncode, shown.returncode) == (ExitCode.REFUSED, ExitCode.NOT_FOUND)
    assert (
        "queue 'narrow' takes no more runs: 0 of 0 are under way; try again in 2 s" in ran.stderr + ran.stdout
    )


def test_a_queued_run_is_pending_and_nothing_is_wrong_with_it(run: Run) -> None:
    """It is shown and listed as such, the doctor does not call it stuck, and it can be cancelled."""
    run("queue", "limit", "narrow", "--max-running", "0")

    started = run("run", "start", "order", "--queue", "narrow", "--run-id", "late", "--json")
    listed = json.loads(run("run", "list", "--status", "PENDING", "--json").stdout.splitlines()[0])
    shown = run("run", "show", "late")
    doctor = run("doctor", "--json")
    cancelled = run("run", "cancel", "late")
    after = json.loads(run("queue", "list", "--json").stdout)

    assert started.returncode == ExitCode.OK
    assert "late" in json.dumps(listed)
    assert "PENDING" in shown.stdout
    assert "run late (order, PENDING) would never go on" not in doctor.stdout
    assert cancelled.returncode == ExitCode.OK
    assert [(one["running"], one["pending"]) for one in after] == [(0, 0)]


def test_a_limit_is_taken_away(run: Run) -> None:
    """Once: then there is none."""
    run("queue", "limit", "reports", "--max-running", "2")

    first, second = run("queue", "unlimit", "reports"), run("queue", "unlimit", "reports")

    assert (first.returncode, second.returncode) == (ExitCode.OK, ExitCode.NOT_FOUND)
    assert "queue 'reports' has no limit" in second.stderr
    assert json.loads(run("queue", "list", "--json").stdout) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("a.b", "--max-running", "1"), "queue 'a.b' is not allowed"),
        (("reports",), "--max-running"),
        (("reports", "--max-running", "-1"), "'--max-running'"),
        (("reports", "--max-running", "1", "--max-pending", "-1"), "'--max-pending'"),
        (("reports", "--max-running", "1", "--overload", "explode"), "it is one of reject, queue, delay"),
        (("reports", "--max-running", "1", "--pause", "0"), "more than 0 and at most 3600 s"),
        (("reports", "--max-running", "1", "--pause", "nan"), "more than 0 and at most 3600 s"),
    ],
)
def test_what_cannot_be_a_limit_is_refused(run: Run, arguments: tuple[str, ...], told: str) -> None:
    """With what is wrong, and nothing is set."""
    ran = run("queue", "limit", *arguments)

    assert ran.returncode == ExitCode.INVALID
    assert told in ran.stderr
    assert json.loads(run("queue", "list", "--json").stdout) == []
