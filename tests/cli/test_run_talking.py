"""``run start``, ``signal``, ``cancel``, ``resolve``, ``reject``, ``unpark``, where nobody serves runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shelves import CANCELLED, COMPLETED, FAILED, PARKED, WAITING, change
from tidewheel.cli.exit_codes import ExitCode

Run = Callable[..., subprocess.CompletedProcess[str]]


def types(run: Run, run_id: str) -> list[str]:
    """Return the types of a run's events."""
    return [entry["type"] for entry in journal(run, run_id)]


def journal(run: Run, run_id: str) -> list[dict[str, Any]]:
    """Return a run's journal as plain data."""
    loaded: list[dict[str, Any]] = json.loads(run("run", "journal", run_id, "--json").stdout)
    return loaded


def test_a_start_prints_the_run_and_warns_where_nobody_serves_it(run: Run, folder: Path) -> None:
    """The id alone is on standard output, for scripts; a run that waits is no error."""
    ran = run("run", "start", "order", "--input", '[7, "a"]', "--run-id", "order-42")

    assert (ran.returncode, ran.stdout) == (ExitCode.OK, "order-42\n")
    assert "warning: no worker is running; the run waits until one does\n" in ran.stderr
    assert "`tidewheel run watch order-42` follows it" in ran.stderr
    assert journal(run, "order-42")[0]["data"]["input"] == [7, "a"]


def test_a_start_as_json_says_how_the_run_stands(run: Run, folder: Path) -> None:
    """The warning is JSON too, on standard error."""
    ran = run("run", "start", "order", "--json", "--queue", "mail", "--namespace", "shop")

    started = json.loads(ran.stdout)
    assert started.keys() == {"run_id", "status"}
    assert started["run_id"].startswith("order-")
    note, warning = map(json.loads, ran.stderr.splitlines())
    assert note["note"]["message"] == f"a new store was made at {folder / 'tidewheel.db'}"
    assert "no worker" in warning["warning"]["message"]
    (listed,) = json.loads(run("run", "list", "--namespace", "shop", "--json").stdout)
    assert listed["queue"] == "mail"


def test_a_start_again_is_the_same_run_and_with_another_input_a_conflict(run: Run, folder: Path) -> None:
    """Nothing is started twice; that the input differs is not passed over."""
    arguments = ["run", "start", "order", "--idempotency-key", "cart-9", "--input"]

    first = run(*arguments, "[1]")
    again = run(*arguments, "[1]")
    other = run(*arguments, "[2]")
    as_json = run(*arguments, "[2]", "--json")

    assert again.stdout == first.stdout
    assert f"run {first.stdout.strip()} exists already (RUNNING); nothing was started\n" in again.stderr
    assert "started;" in first.stderr
    assert "started;" not in again.stderr
    assert (other.returncode, other.stdout) == (ExitCode.REFUSED, "")
    assert "was started before with another workflow or input" in other.stderr
    assert json.loads(as_json.stdout) == {
        "run_id": first.stdout.strip(),
        "status": "RUNNING",
        "mismatch": True,
    }
    assert json.loads(as_json.stderr.splitlines()[-1])["error"]["type"] == "Refused"


def test_a_key_of_another_run_is_told_whose_it_is(run: Run, folder: Path) -> None:
    """Whoever chose an id is not to believe that there is a run with it."""
    start = ["run", "start", "order", "--idempotency-key", "k1", "--run-id"]
    run(*start, "mine")

    again = run(*start, "other")
    as_json = run(*start, "other", "--json")
    waiting = run(*start, "other", "--wait", "--timeout", "0")
    conflict = run(*start, "other", "--input", "[2]")

    whose = "--idempotency-key 'k1' belongs to run mine, not other"
    assert (again.returncode, again.stdout) == (ExitCode.OK, "mine\n")
    assert f"{whose} (RUNNING); nothing was started\n" in again.stderr
    assert json.loads(as_json.stdout) == {"run_id": "mine", "status": "RUNNING", "existed": True}
    assert f"{whose} (RUNNING); nothing was started\n" in waiting.stderr
    assert conflict.returncode == ExitCode.REFUSED
    assert f"error: {whose}: run mine was started before" in conflict.stderr


def test_a_new_store_is_told_of(run: Run, folder: Path) -> None:
    """Who starts a run in the wrong folder is not to look for it in the right one."""
    first = run("run", "start", "order")
    second = run("run", "start", "order")

    assert f"note: a new store was made at {folder / 'tidewheel.db'}\n" in first.stderr
    assert "note:" not in second.stderr


@pytest.mark.parametrize("timeout", ["nan", "inf", "-1", "x", "1e99"])
@pytest.mark.parametrize("command", [["start", "order", "--wait"], ["result", "sum-1"]])
def test_a_timeout_that_is_none_is_refused_before_anything_is_done(
    run: Run, folder: Path, command: list[str], timeout: str
) -> None:
    """It names the option, and nothing was started."""
    ran = run("run", *command, "--timeout", timeout)

    assert (ran.returncode, ran.stdout) == (ExitCode.INVALID, "")
    assert "--timeout" in ran.stderr
    assert list(folder.glob("*.db")) == []


@pytest.mark.parametrize("flag", ["--store", "--broker", "--namespace"])
def test_a_flag_without_a_value_is_named(run: Run, shelf: Path, flag: str) -> None:
    """As a variable that is not set leaves it."""
    ran = run("run", "start", "order", flag, "")

    assert (ran.returncode, ran.stdout) == (ExitCode.INVALID, "")
    assert ran.stderr.startswith(f"error: {flag} is empty\n")


def test_waiting_has_a_bound_and_the_run_goes_on(run: Run, folder: Path) -> None:
    """What did not end in time is not a success, and is said not to have stopped."""
    ran = run("run", "start", "order", "--run-id", "o-1", "--wait", "--timeout", "0.1", "--json")

    assert ran.returncode == ExitCode.FINDING
    assert json.loads(ran.stdout) == {"run_id": "o-1", "status": "RUNNING"}
    assert "did not end within 0.1 seconds: it is RUNNING; it goes on" in ran.stderr
    again = run("run", "result", "o-1", "--timeout", "0", "--json")
    assert (again.returncode, again.stdout) == (ran.returncode, ran.stdout)


@pytest.mark.parametrize(
    ("started", "code", "answer"),
    [
        ([COMPLETED, "total", "[1, 2]"], ExitCode.OK, {"status": "COMPLETED", "result": 3}),
        (
            [FAILED, "fails", "[]"],
            ExitCode.FINDING,
            {
                "status": "FAILED",
                "error": {
                    "type": "ValueError",
                    "message": "breaks: out of stock",
                    "retryable": True,
                    "attempts": 1,
                },
            },
        ),
        (
            [CANCELLED, "waits", "[]"],
            ExitCode.FINDING,
            {
                "status": "CANCELLED",
                "error": {"type": "RunCancelled", "message": "changed my mind", "retryable": False},
            },
        ),
    ],
)
def test_waiting_gives_the_result_or_the_error(
    run: Run, shelf: Path, started: list[str], code: ExitCode, answer: dict[str, Any]
) -> None:
    """The shape is fixed: run_id, status, and result or error."""
    run_id, workflow, given = started
    arguments = ["run", "start", workflow, "--run-id", run_id, "--input", given, "--wait"]

    as_json = run(*arguments, "--json")
    plain = run(*arguments)
    result = run("run", "result", run_id)
    result_as_json = run("run", "result", run_id, "--timeout", "5", "--json")

    assert (as_json.returncode, as_json.stderr) == (code, "")
    assert json.loads(as_json.stdout) == {"run_id": run_id, **answer}
    assert (result_as_json.returncode, result_as_json.stdout) == (code, as_json.stdout)
    assert (result.returncode, result.stdout) == (code, plain.stdout)
    assert plain.returncode == code
    assert plain.stdout == ("3\n" if code is ExitCode.OK else "")
    assert (answer["status"].lower() in plain.stderr) == (code is not ExitCode.OK)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("[1, 2", "--input is not JSON: Expecting ',' delimiter at character 6"),
        ("[1,\n tru]", "--input is not JSON: Expecting value at line 2, character 2"),
        ("", "--input is not JSON: Expecting value at character 1"),
        ("[NaN]", "--input is not JSON: NaN is no number of JSON"),
        ("7", "--input is the list of the workflow's arguments, not a number"),
        ('{"a": 1}', "not an object"),
        ("null", "not null"),
        ("[" * 100_000, "nested too deeply"),
        ('["' + "x" * 3_000_000 + '"]', "the limit is 2,097,152"),
    ],
)
def test_bad_input_is_refused_with_its_place(run: Run, folder: Path, given: str, message: str) -> None:
    """Before anything is written."""
    ran = run("run", "start", "order", "--input", given)

    assert (ran.returncode, ran.stdout) == (ExitCode.INVALID, "")
    assert message in ran.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["start", "no such name"],
        ["start", "order", "--run-id", "a b"],
        ["start", "order", "--idempotency-key", ""],
        ["start", "order", "--queue", "a/b"],
        ["signal", WAITING, "a b"],
        ["signal", WAITING, "go", "--payload", "yes"],
        ["resolve", WAITING, "answer", "--value", "'yes'"],
        ["cancel", "a b"],
    ],
)
def test_what_can_never_work_is_invalid(run: Run, shelf: Path, arguments: list[str]) -> None:
    """One message, no traceback, exit code 2."""
    ran = run("run", *arguments)

    assert (ran.returncode, ran.stdout) == (ExitCode.INVALID, "")
    assert ran.stderr.startswith("error: ")


def test_a_signal_is_delivered_once_per_request(run: Run, shelf: Path) -> None:
    """Sent again with its key, the run gets it once."""
    arguments = ["run", "signal", WAITING, "go", "--payload", '{"by": "ann"}', "--request-id", "r-1"]

    first = run(*arguments)
    again = run(*arguments, "--json")

    deliveries = [entry for entry in journal(run, WAITING) if entry["type"] == "SignalDelivered"]
    assert (first.returncode, first.stdout) == (ExitCode.OK, "")
    assert first.stderr == f"{WAITING}: signal 'go' sent\n"
    assert json.loads(again.stdout) == {"run_id": WAITING, "status": "RUNNING"}
    assert [entry["data"]["payload"] for entry in deliveries] == [{"by": "ann"}]


@pytest.mark.parametrize("verb", [["signal", "go"], ["resolve", "answer"], ["reject", "answer", "no"]])
def test_a_run_that_has_ended_takes_nothing(run: Run, shelf: Path, verb: list[str]) -> None:
    """Refused, whatever it is; and a run that was never there is not found."""
    ended = run("run", verb[0], COMPLETED, *verb[1:])
    missing = run("run", verb[0], "nope", *verb[1:])

    assert ended.returncode == ExitCode.REFUSED
    assert "it has ended (COMPLETED)" in ended.stderr
    assert missing.returncode == ExitCode.NOT_FOUND


def test_a_promise_that_is_not_there_is_not_found(run: Run, shelf: Path) -> None:
    """The answer lists those there are."""
    ran = run("run", "resolve", WAITING, "answer")

    assert ran.returncode == ExitCode.NOT_FOUND
    assert ran.stderr == f"error: run {WAITING} has no promise 'answer'; it has: none\n"


def test_cancelling_again_or_too_late_changes_nothing(run: Run, shelf: Path) -> None:
    """Who wants a run to stop has what they want."""
    first = run("run", "cancel", WAITING, "--reason", "sold out")
    again = run("run", "cancel", WAITING)
    late = run("run", "cancel", COMPLETED)
    missing = run("run", "cancel", "nope")

    assert first.returncode == again.returncode == late.returncode == ExitCode.OK
    assert first.stderr == f"{WAITING}: asked to stop\n"
    assert again.stderr == f"{WAITING}: was asked to stop before\n"
    assert late.stderr == f"{COMPLETED}: has ended already (COMPLETED), nothing to cancel\n"
    assert missing.returncode == ExitCode.NOT_FOUND
    assert types(run, WAITING).count("CancelRequested") == 1


def test_a_parked_run_can_be_let_go_on(run: Run, shelf: Path) -> None:
    """It is then owed a wake-up; one that is not parked has nothing to be let go from."""
    freed = run("run", "unpark", PARKED)
    again = run("run", "unpark", PARKED)
    ended = run("run", "unpark", COMPLETED)

    assert freed.returncode == ExitCode.OK
    assert freed.stderr.startswith(f"{PARKED}: goes on; it was parked (unknown_workflow): ")
    assert again.stderr == f"{PARKED}: is not parked, nothing to do\n"
    assert ended.returncode == ExitCode.REFUSED
    assert json.loads(run("run", "list", "--parked", "--json").stdout) == []


def test_a_broker_that_is_away_is_a_warning(run: Run, shelf: Path) -> None:
    """What was said is in the store; the keeper sees to the rest."""
    ran = run("run", "signal", WAITING, "go", "--broker", "embedded:////dev/null/broker.db")

    assert ran.returncode == ExitCode.OK
    assert "warning: the work is stored, but no worker was told" in ran.stderr
    assert "SignalDelivered" in types(run, WAITING)


def test_flags_come_before_the_environment(run: Run, shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the environment, then the defaults."""
    monkeypatch.setenv("TIDEWHEEL_STORE", "sqlite:///missing.db")
    monkeypatch.setenv("TIDEWHEEL_NAMESPACE", "nowhere")

    by_environment = run("run", "list")
    by_flag = run("run", "list", "--store", "sqlite:///tidewheel.db", "--json")
    by_flags = run("run", "list", "--store", "sqlite:///tidewheel.db", "--namespace", "default", "--json")

    assert by_environment.returncode == ExitCode.UNREACHABLE
    assert json.loads(by_flag.stdout) == []
    assert len(json.loads(by_flags.stdout)) == 5


def test_a_run_of_a_workflow_that_no_worker_has_is_warned_of(run: Run, shelf: Path) -> None:
    """The warning says what the running workers have."""
    change(
        "INSERT INTO tidewheel_workers (worker_id, namespace, host, pid, began, queues, workflows, "
        "started_at, alive_until) VALUES ('w-1', 'default', 'h', 1, '', '[\"default\"]', "
        '\'[["total", "", ""]]\', 0, 9000000000000000)'
    )

    other = run("run", "start", "order")
    elsewhere = run("run", "start", "total", "--input", "[1, 2]", "--queue", "mail")
    served = run("run", "start", "total", "--input", "[1, 2]")

    assert "no running worker has the workflow 'order' (they have: total)" in other.stderr
    assert "serves the queue 'mail' (they serve: default)" in elsewhere.stderr
    assert "warning" not in served.stderr
