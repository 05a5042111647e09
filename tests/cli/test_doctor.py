"""``tidewheel doctor``: finds what keeps runs from going on, says why, and mends what can be mended."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shelves import COMPLETED, PARKED, WAITING, change, microseconds_ago
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.opening import open_broker
from tidewheel.broker.topology import COMMANDS, commands_topology
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.workers.lifeline import process_began

Run = Callable[..., subprocess.CompletedProcess[str]]

FORGET = (
    "UPDATE tidewheel_runs SET parked = NULL, parked_reason = NULL, wake_at = NULL, workflow = 'total' "
    "WHERE run_id = ?"
)
A_WORKER = (
    "INSERT INTO tidewheel_workers (worker_id, namespace, host, pid, began, queues, workflows, "
    "started_at, alive_until) VALUES ('w-1', 'default', 'h', 1, '', '[\"default\"]', "
    '\'[["total", "", ""], ["waits", "", ""]]\', 0, ?)'
)
ROW = " WHERE first_seq = ? AND run_key = (SELECT run_key FROM tidewheel_runs WHERE run_id = ?)"
DELETE_ROW = f"DELETE FROM tidewheel_journal{ROW}"  # noqa: S608 - constants of this file
FOR_EVER = 9_000_000_000_000_000


def found(run: Run, check: str, *flags: str) -> list[dict[str, Any]]:
    """Return what *check* finds."""
    report = json.loads(run("doctor", "--json", *flags).stdout)
    return [finding for finding in report["findings"] if finding["check"] == check]


@pytest.fixture
def healthy(run: Run, shelf: Path) -> None:
    """A store in which nothing is wrong: a worker, and nothing parked."""
    change(A_WORKER, FOR_EVER)
    change(
        "UPDATE tidewheel_runs SET parked = NULL, parked_reason = NULL, wake_at = ? WHERE run_id = 'lost-1'",
        FOR_EVER,
    )
    change("UPDATE tidewheel_runs SET workflow = 'total' WHERE run_id = 'lost-1'")


def test_where_nothing_is_wrong_it_says_what_it_looked_at(run: Run, healthy: None) -> None:
    """Exit code 0, and a line per check."""
    plain = run("doctor")
    report = json.loads(run("doctor", "--json", "--deep").stdout)

    assert plain.returncode == ExitCode.OK
    assert plain.stdout.splitlines()[-1] == "nothing found"
    assert "ok     workers       1 worker alive; queues: default; workflows: total, waits" in plain.stdout
    assert "2 open runs; woken 1 by keeper, 1 by signal" in plain.stdout
    assert report["ok"] is True
    assert {check["check"] for check in report["checks"]} >= {"store", "clock", "broker", "journals"}


def test_a_parked_run_is_found_with_what_to_do(run: Run, shelf: Path) -> None:
    """And that nobody serves what is there."""
    ran = run("doctor")

    assert ran.returncode == ExitCode.FINDING
    assert f"run {PARKED} is parked (unknown_workflow): " in ran.stdout
    assert "start a worker whose app has this workflow" in ran.stdout
    assert "no worker is running, and 2 open runs may need one" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "2 things found"


def test_a_quarantined_run_is_told_how_to_leave_it(run: Run, shelf: Path) -> None:
    """Nobody wakes it but an operator."""
    change("UPDATE tidewheel_runs SET parked = 'quarantine' WHERE run_id = ?", PARKED)

    (finding,) = found(run, "parked")

    assert finding["run_id"] == PARKED
    assert f"`tidewheel run unpark {PARKED}`" in finding["advice"]


def test_a_run_that_nobody_would_wake_is_found_and_mended(run: Run, shelf: Path) -> None:
    """It is a bug that there is one; with --fix it is owed a wake-up again."""
    change(FORGET, PARKED)

    (before,) = found(run, "wake-ups")
    (mended,) = found(run, "wake-ups", "--fix")
    after = found(run, "wake-ups")

    assert before["run_id"] == PARKED
    assert "would never go on" in before["message"]
    assert "--fix" in before["advice"]
    assert (before["fixed"], mended["fixed"]) == (False, True)
    assert after == []


def test_a_run_whose_step_is_lost_is_found(run: Run, shelf: Path) -> None:
    """A started step of a worker that nobody knows wakes nobody."""
    change(FORGET, PARKED)
    change(
        "INSERT INTO tidewheel_steps (run_key, path, kind, function_name, queue, dispatch, state, attempt, "
        "scheduled_seq, scheduled_at, owner, abandoned, hints, step_id, key_part, logical_attempt, told, "
        "failed) "
        "SELECT run_key, '0', 'function', 'add', 'default', 'inline', 'started', 1, 0, 0, 'w-9', 0, 0, "
        "'0', '0', 1, 1, 0 FROM tidewheel_runs WHERE run_id = ?",
        PARKED,
    )

    (finding,) = found(run, "wake-ups")
    change("UPDATE tidewheel_steps SET state = 'parked'")
    with_an_operator = found(run, "wake-ups")

    assert "step 0 started" in finding["message"]
    assert with_an_operator == []
    assert "waits for an operator" in found(run, "steps")[0]["message"]


def test_a_run_whose_worker_executes_a_step_is_not_forgotten(run: Run, shelf: Path) -> None:
    """The step is in the run's own row: its worker has it, or the keeper, once the worker's lease is over."""
    change(A_WORKER, FOR_EVER)
    change(FORGET, PARKED)
    change(
        "UPDATE tidewheel_runs SET owner = 'w-1', inline_steps = ? WHERE run_id = ?",
        '[{"path":"0","function_name":"add","scheduled_seq":0,"scheduled_at":"2026-01-01T00:00:00Z"}]',
        PARKED,
    )

    with_its_worker = run("doctor").stdout
    change("UPDATE tidewheel_workers SET alive_until = ?", microseconds_ago(60))
    with_the_keeper = run("doctor").stdout

    assert "2 open runs; woken 1 by signal, 1 by worker" in with_its_worker
    assert "2 open runs; woken 1 by keeper, 1 by signal" in with_the_keeper
    assert found(run, "wake-ups") == []


def test_a_run_that_waits_for_a_queued_step_is_not_forgotten(run: Run, shelf: Path) -> None:
    """The keeper looks after steps on queues, and those that wait for an operator are told of."""
    change(FORGET, PARKED)
    change(
        "INSERT INTO tidewheel_steps (run_key, path, kind, function_name, queue, dispatch, state, attempt, "
        "scheduled_seq, scheduled_at, due_at, abandoned, hints, step_id, key_part, logical_attempt, told, "
        "failed) "
        "SELECT run_key, '0', 'function', 'add', 'mail', 'queued', 'scheduled', 0, 0, 0, ?, 0, 0, "
        "'0', '0', 1, 0, 0 FROM tidewheel_runs WHERE run_id = ?",
        FOR_EVER,
        PARKED,
    )

    waiting = found(run, "wake-ups")
    change("UPDATE tidewheel_steps SET state = 'parked', due_at = NULL")

    assert waiting == found(run, "wake-ups") == []
    assert "waits for an operator" in found(run, "steps")[0]["message"]


def test_a_signal_that_was_delivered_and_not_shown_is_found(run: Run, shelf: Path) -> None:
    """It has come: the outside world will not send it again."""
    run("run", "signal", WAITING, "go")
    change("UPDATE tidewheel_runs SET wake_at = NULL WHERE run_id = ?", WAITING)

    (finding,) = found(run, "wake-ups")

    assert finding["run_id"] == WAITING


def test_what_is_overdue_points_to_the_keeper(run: Run, healthy: None) -> None:
    """Hints, timers and steps that should have been seen to."""
    change("UPDATE tidewheel_runs SET wake_at = ? WHERE run_id = ?", microseconds_ago(120), PARKED)
    moment = microseconds_ago(60)
    change(
        "INSERT INTO tidewheel_timers SELECT run_key, '9', ?, ? FROM tidewheel_runs WHERE run_id = ?",
        moment,
        moment,
        WAITING,
    )

    (both,) = found(run, "due")
    change("UPDATE tidewheel_runs SET wake_at = ? WHERE run_id = ?", FOR_EVER, PARKED)
    (alone,) = found(run, "due")

    assert both["message"].startswith("2 runs are overdue, the oldest by 2 min")
    assert both["message"].endswith(f": {PARKED}, {WAITING}")
    assert both["run_ids"] == [PARKED, WAITING]
    assert f"timer 9 of run {WAITING} should have fired 1 min" in alone["message"]
    assert "no keeper seems to be running" in alone["advice"]


def test_a_hint_that_nobody_follows_is_found(run: Run, healthy: None) -> None:
    """Repeating it has not helped."""
    change("UPDATE tidewheel_runs SET hints = 7 WHERE run_id = ?", PARKED)

    (finding,) = found(run, "hints")

    assert "was hinted at 7 times" in finding["message"]


def test_runs_that_no_worker_has_the_code_of_are_counted(run: Run, healthy: None) -> None:
    """One line for all of them, with what the workers have."""
    change("UPDATE tidewheel_runs SET workflow = 'gone' WHERE run_id = ?", WAITING)

    (finding,) = found(run, "workers")

    assert finding["message"] == (
        "1 open run: no running worker has the workflow 'gone' (they have: total, waits)"
    )


def test_a_worker_whose_lease_ran_out_is_not_alive(run: Run, shelf: Path) -> None:
    """It may be dead; a keeper would know."""
    change(A_WORKER, microseconds_ago(60))

    assert "no worker is running" in found(run, "workers")[0]["message"]


def test_a_worker_that_lives_and_says_nothing_is_found(run: Run, shelf: Path) -> None:
    """Its process is there, so it is not dead: something keeps it from renewing its lease."""
    change(A_WORKER, microseconds_ago(60))
    began = process_began(os.getpid())
    change(
        "UPDATE tidewheel_workers SET host = ?, pid = ?, began = ?", socket.gethostname(), os.getpid(), began
    )

    (finding,) = found(run, "workers")

    assert f"worker {os.getpid()} lives but has said nothing since its lease ran out" in finding["message"]
    assert "blocked by user code?" in finding["message"]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE tidewheel_journal SET data = x'00'",
        "DELETE FROM tidewheel_journal",
    ],
)
@pytest.mark.parametrize("run_seq", [0, 1])
@pytest.mark.parametrize("flags", [[], ["--deep"]])
def test_a_run_that_cannot_be_read_is_one_finding(
    run: Run, healthy: None, damage: str, flags: list[str], run_seq: int
) -> None:
    """All other checks are made, and the finding says what to do."""
    change(damage + ROW, run_seq, WAITING)

    plain = run("doctor", *flags)
    report = json.loads(run("doctor", "--json", *flags).stdout)

    (finding,) = report["findings"]
    assert plain.returncode == ExitCode.FINDING
    assert (finding["check"], finding["run_id"]) == ("journals", WAITING)
    assert f"event {run_seq} of run {WAITING} cannot be read" in finding["message"]
    assert "from a backup" in finding["advice"]
    assert "2 open runs; woken 1 by keeper" in plain.stdout
    assert "ok     dead letters" in plain.stdout
    assert "tidewheel doctor" not in plain.stdout + plain.stderr


def test_commands_that_could_not_be_followed_are_found(run: Run, healthy: None) -> None:
    """Somebody waits for what they ask for; nobody but people can do anything about it."""

    async def bury() -> None:
        broker = open_broker("embedded://", store_url="sqlite:///tidewheel.db")
        await broker.declare(commands_topology())
        letter = Publication(message=Message(body=b"{", message_id="m"), routing_key=f"{COMMANDS}.dlq")
        await broker.publish([letter])
        await broker.close()

    asyncio.run(bury())

    (finding,) = json.loads(run("doctor", "--json").stdout)["findings"]
    assert finding["check"] == "dead letters"
    assert finding["message"] == "1 command that could not be followed in tidewheel.commands.dlq"
    assert "x-tidewheel-reason" in finding["advice"]


def test_a_run_that_is_parked_as_unreadable_is_told_once(run: Run, healthy: None) -> None:
    """A worker found out before the doctor did."""
    change("UPDATE tidewheel_runs SET parked = 'unreadable' WHERE run_id = ?", WAITING)
    change(DELETE_ROW, 1, WAITING)

    report = json.loads(run("doctor", "--json", "--deep").stdout)

    assert [finding["check"] for finding in report["findings"]] == ["parked"]


def test_a_store_that_cannot_be_written_is_unreachable_and_the_rest_is_told(run: Run, healthy: None) -> None:
    """It can be read, and nothing in it can go on."""
    holder = sqlite3.connect("tidewheel.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")

    ran = run("doctor", "--fix")
    holder.close()

    assert ran.returncode == ExitCode.UNREACHABLE
    assert "found  store         sqlite:///tidewheel.db, schema" in ran.stdout
    assert "tidewheel.db is locked by another process" in ran.stdout
    assert "2 open runs; woken 1 by keeper" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "1 thing found"
    assert run("doctor").returncode == ExitCode.OK


def test_a_store_that_cannot_be_opened_is_a_finding(run: Run, shelf: Path) -> None:
    """Whoever asks the doctor is not sent to the doctor."""
    for file in shelf.glob("tidewheel.db*"):
        file.unlink()
    Path("tidewheel.db").write_bytes(b"not a database" * 100)

    ran = run("doctor")

    assert ran.returncode == ExitCode.UNREACHABLE
    assert "is not a SQLite database" in ran.stdout
    assert "tidewheel doctor" not in ran.stdout + ran.stderr


def test_a_disk_that_is_nearly_full_is_found(
    run: Run, healthy: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is full, while something can be done about it."""
    usage = shutil.disk_usage(".")._replace(free=10 * 1024 * 1024)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)

    ran = run("doctor")

    assert ran.returncode == ExitCode.FINDING
    assert "the disk of tidewheel.db has only 10.0 MiB left" in ran.stdout
    assert "make room" in ran.stdout


def test_journals_are_read_only_if_asked(run: Run, healthy: None) -> None:
    """--deep reads those of ended runs too."""
    change(
        "UPDATE tidewheel_journal SET data = x'00' WHERE first_seq = 1 AND run_key = "
        "(SELECT run_key FROM tidewheel_runs WHERE run_id = ?)",
        COMPLETED,
    )

    shallow = run("doctor")
    deep = found(run, "journals", "--deep")

    assert shallow.returncode == ExitCode.OK
    assert [finding["run_id"] for finding in deep] == [COMPLETED]
    assert "FORMAT" in deep[0]["message"]


def test_a_broker_that_is_away_is_unreachable_and_the_rest_is_told(run: Run, shelf: Path) -> None:
    """Exit code 4, with everything that could be found out."""
    ran = run("doctor", "--broker", "embedded:////dev/null/broker.db")

    assert ran.returncode == ExitCode.UNREACHABLE
    assert "found  broker" in ran.stdout
    assert f"run {PARKED} is parked" in ran.stdout


def test_a_damaged_broker_file_is_told_how_to_be_rid_of(run: Run, healthy: None) -> None:
    """Nothing in it is needed: hints are given again."""
    Path("queues.db").write_bytes(b"not a database" * 100)

    ran = run("doctor", "--broker", "embedded:///queues.db")

    assert ran.returncode == ExitCode.UNREACHABLE
    assert "stop all processes and remove it: hints in it are given again" in ran.stdout


@pytest.mark.usefixtures("shelf")
def test_events_that_could_not_be_published_are_found(run: Run) -> None:
    """Their runs go on, but consumers wait for them."""
    change("UPDATE tidewheel_outbox SET dead_at = 1 WHERE first_seq = 0")

    ran = run("doctor")

    assert ran.returncode == ExitCode.FINDING
    assert "of events that could not be published" in ran.stdout
    assert "`tidewheel dlq list` says why" in ran.stdout
