"""``dev``, ``up``, ``worker`` and ``keeper``, as real processes, used from another process."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.processes import Service, Terminal, until
from tests.cli.shelves import PARKED
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.workers.lifeline import process_began

Run = Callable[..., subprocess.CompletedProcess[str]]
Serve = Callable[..., Service]


def test_runs_are_started_and_talked_to_from_another_process(run: Run, serve: Serve, folder: Path) -> None:
    """All that a user does with a run, while one process executes it, until it is told to stop."""
    dev = serve("dev", "depot.py:app")
    dev.wait_for("ready")

    total = run("run", "start", "total", "--input", "[40, 2]", "--wait", "--json")
    failed = run("run", "start", "fails", "--run-id", "f-1", "--wait")
    started = run("run", "start", "waits", "--run-id", "w-1")
    told = run("run", "signal", "w-1", "go", "--payload", "1")
    dev.wait_for("run w-1 (waits) started")
    watcher = serve("run", "watch", "w-1")
    watcher.wait_for("waits for promise 'answer'")
    resolved = run("run", "resolve", "w-1", "answer", "--value", '"yes"')
    watched = watcher.exit_code()
    stopped = run("run", "start", "waits", "--run-id", "w-2")
    cancelled = run("run", "cancel", "w-2", "--reason", "sold out")
    ending = run("run", "watch", "w-2")
    doctor = run("doctor")
    dev.send(signal.SIGTERM)

    answer = json.loads(total.stdout)
    assert (total.returncode, answer["status"], answer["result"]) == (ExitCode.OK, "COMPLETED", 42)
    assert failed.returncode == ExitCode.FINDING
    assert "run f-1 failed: ValueError: breaks: out of stock" in failed.stderr
    assert started.returncode == told.returncode == resolved.returncode == stopped.returncode == ExitCode.OK
    assert (watched, watcher.lines[-1][13:]) == (ExitCode.OK, 'completed: [1,"yes"]')
    assert cancelled.returncode == ExitCode.OK
    assert ending.returncode == ExitCode.FINDING
    assert ending.stdout.splitlines()[-1].endswith("cancelled: sold out")
    assert (doctor.returncode, doctor.stdout.splitlines()[-1]) == (ExitCode.OK, "nothing found")
    assert dev.exit_code() == ExitCode.OK
    assert "warning" not in started.stderr


def test_dev_says_where_everything_is_and_what_happens(run: Run, serve: Serve, folder: Path) -> None:
    """Where its files are, what the app has, how to start a run; then a line per run that starts and ends."""
    dev = serve("dev", "depot.py:app", "--dir", "kept", "--queue", "default", "--queue", "mail")
    dev.wait_for("ready")
    store = f"sqlite:///{folder / 'kept' / 'tidewheel.db'}"

    ran = run("run", "start", "total", "--input", "[1, 2]", "--run-id", "t-1", "--store", store, "--wait")
    dev.wait_for("run t-1 (total) completed after")

    assert ran.stdout == "3\n"
    assert f"  store      {store}" in dev.lines
    assert "  namespace  default, queues default, mail" in dev.lines
    assert dev.wait_for("  workflows  ").startswith("  workflows  total(left, right), fails(), waits()")
    assert "add(left, right)" in dev.wait_for("  tasks  ")
    suggested = dev.wait_for("  tidewheel run start total")
    assert suggested.endswith(f"""--input '["left", "right"]' --store {store}""")
    assert "run t-1 (total) started" in dev.text
    assert sorted(path.name for path in (folder / "kept").glob("*.db")) == [
        "tidewheel.broker.db",
        "tidewheel.db",
    ]
    assert list(folder.glob("*.db")) == []


def test_the_log_is_json_if_asked_for(run: Run, serve: Serve, folder: Path) -> None:
    """Every line can be read by a program; inputs and results are in none of them."""
    up = serve("up", "depot.py:app", "--json")
    ready = json.loads(up.wait_for('"ready"'))

    run("run", "start", "total", "--input", "[918273645, 546372819]", "--run-id", "t-1", "--wait")
    up.wait_for("completed after")
    up.send(signal.SIGINT)
    code = up.exit_code()

    lines = [json.loads(line) for line in up.lines]
    assert code == ExitCode.OK
    assert (ready["role"], ready["app"], ready["namespace"]) == ("up", "depot", "default")
    assert "waits" in ready["workflows"]
    assert all({"at", "level", "logger", "message"} <= line.keys() for line in lines)
    assert [line["workflow"] for line in lines if line.get("run_id") == "t-1"] == ["total", "total"]
    assert lines[-1]["message"] == "stopped"
    assert not any(number in up.text for number in ("918273645", "546372819", "1464646464"))


def test_told_to_stop_it_finishes_what_is_in_hand(run: Run, serve: Serve, folder: Path) -> None:
    """The step's result is in the journal before the process ends with 0."""
    worker = serve("dev", "depot.py:app")
    worker.wait_for("ready")
    run("run", "start", "holds", "--input", '["gate"]', "--run-id", "h-1")
    until((folder / "gate.begun").exists)

    worker.send(signal.SIGTERM)
    worker.wait_for("stopping")
    (folder / "gate").touch()

    assert worker.exit_code() == ExitCode.OK
    assert worker.lines[-1].endswith("stopped")
    journal = json.loads(run("run", "journal", "h-1", "--json").stdout)
    assert "held" in [entry["data"]["result"].get("ok") for entry in journal if "result" in entry["data"]]
    assert (folder / "gate.begun").read_text() == "begun\n"


def test_told_twice_it_stops_at_once(run: Run, serve: Serve, folder: Path) -> None:
    """Whatever is in hand; the next process takes it up."""
    dev = serve("dev", "depot.py:app")
    dev.wait_for("ready")
    run("run", "start", "holds", "--input", '["gate"]', "--run-id", "h-1")
    until((folder / "gate.begun").exists)

    dev.send(signal.SIGINT)
    dev.wait_for("a second signal ends at once")
    dev.send(signal.SIGINT)

    assert dev.exit_code() == ExitCode.INTERRUPTED


def test_killed_and_started_again_it_goes_on(run: Run, serve: Serve, folder: Path) -> None:
    """What was done is not done again; what was in hand is tried again, with no lease to wait for."""
    first = serve("dev", "depot.py:app")
    first.wait_for("ready")
    run("run", "start", "holds", "--input", '["gate"]', "--run-id", "h-1")
    until((folder / "gate.begun").exists)
    first.send(signal.SIGKILL)
    killed = first.exit_code()

    second = serve("dev", "depot.py:app")
    second.wait_for("takes over from workers of this host that ended")
    (folder / "gate").touch()
    ran = run("run", "start", "holds", "--input", '["gate"]', "--run-id", "h-1", "--wait", "--json")

    assert killed == -signal.SIGKILL
    assert json.loads(ran.stdout)["result"] == [3, "held"]
    journal = json.loads(run("run", "journal", "h-1", "--json").stdout)
    kinds = [entry["type"] for entry in journal]
    assert kinds.count("InvokeCompleted") == 2
    assert run("journal", "verify", "h-1").returncode == ExitCode.OK


def test_a_thread_that_does_not_come_back_does_not_hold_up_the_end(
    run: Run, serve: Serve, folder: Path
) -> None:
    """After the grace its step is handed back, and the process ends."""
    dev = serve("dev", "depot.py:app", "--grace", "0.2")
    dev.wait_for("ready")
    run("run", "start", "blocks", "--input", '["gate"]', "--run-id", "b-1")
    until((folder / "gate.begun").exists)

    dev.send(signal.SIGTERM)

    assert dev.exit_code() == ExitCode.OK
    assert dev.lines[-1].endswith("stopped")


def test_roles_can_have_a_process_each(run: Run, serve: Serve, folder: Path) -> None:
    """A worker executes, a keeper wakes what sleeps; both stop when they are told to."""
    keeper = serve("keeper", "--log-level", "info")
    keeper.wait_for("ready")
    worker = serve("worker", "depot.py:app")
    worker.wait_for("ready")

    ran = run("run", "start", "naps", "--input", "[0.2]", "--wait", "--json")
    worker.send(signal.SIGTERM)
    keeper.send(signal.SIGTERM)

    assert json.loads(ran.stdout)["result"] == "rested"
    assert (worker.exit_code(), keeper.exit_code()) == (ExitCode.OK, ExitCode.OK)
    assert keeper.lines[0] == "tidewheel keeper"


def test_a_task_may_have_a_process_of_its_own(run: Run, serve: Serve, folder: Path) -> None:
    """It finds the app's file again; what it prints does not get into a log for programs."""
    dev = serve("dev", "depot.py:app", "--json")
    dev.wait_for('"ready"')

    ran = run("run", "start", "squares", "--input", "[12]", "--wait")

    squared, pid = json.loads(ran.stdout)
    assert squared == 144
    assert pid != dev.pid
    assert "squaring 12" in dev.lines
    assert process_began(pid)
    dev.send(signal.SIGTERM)
    assert dev.exit_code() == ExitCode.OK
    assert not process_began(pid)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing.py:app"], ExitCode.NOT_FOUND, "there is no file 'missing.py'"),
        (["depot.py:nothing"], ExitCode.NOT_FOUND, "depot.py has no 'nothing'"),
        (["broken.py:app"], ExitCode.INVALID, "cannot be imported: ZeroDivisionError"),
        (["depot.py:app", "--store", "mysql://x"], ExitCode.INVALID, "mysql:// is not a store"),
        (["depot.py:app", "--broker", "pigeon://x"], ExitCode.INVALID, "no broker is known for pigeon://"),
        (["depot.py:app", "--namespace", "a b"], ExitCode.INVALID, "namespace"),
        (["depot.py:app", "--queue", "a b"], ExitCode.INVALID, "queue"),
        (["depot.py:app", "--grace", "-1"], ExitCode.INVALID, "grace"),
        (["depot.py:app", "--store", "sqlite:////dev/null/x.db"], ExitCode.UNREACHABLE, "/dev/null/x.db"),
        (["depot.py:app", "--store", "sqlite:///text.db"], ExitCode.UNREACHABLE, "is not a SQLite database"),
        (["depot.py:app", "--broker", "embedded:////dev/null/b.db"], ExitCode.UNREACHABLE, "/dev/null/b.db"),
    ],
)
def test_what_cannot_be_served_is_said_at_once(
    run: Run, shelf: Path, arguments: list[str], code: ExitCode, message: str
) -> None:
    """One message, and an exit code that says whose mistake it is."""
    (shelf / "broken.py").write_text("1 / 0\n")
    (shelf / "text.db").write_bytes(b"not a database" * 100)

    ran = run("up", *arguments)

    assert (ran.returncode, ran.stdout) == (code, "")
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr or code is ExitCode.INVALID


def test_a_bad_variable_is_refused_by_name(run: Run, shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started."""
    monkeypatch.setenv("TIDEWHEEL_SLOTS", "many")

    ran = run("worker", "depot.py:app")

    assert ran.returncode == ExitCode.INVALID
    assert "TIDEWHEEL_SLOTS: 'many' cannot be used" in ran.stderr


def test_ctrl_c_while_waiting_leaves_the_run_alone(serve: Serve, run: Run, folder: Path) -> None:
    """Exit code 130, and it is said that the run goes on."""
    starting = serve("run", "start", "total", "--input", "[1, 2]", "--run-id", "t-1", "--wait")
    starting.wait_for("no worker is running")
    watching = serve("run", "watch", "t-1")
    watching.wait_for("total started")

    starting.send(signal.SIGINT)
    watching.send(signal.SIGINT)

    assert (starting.exit_code(), watching.exit_code()) == (ExitCode.INTERRUPTED, ExitCode.INTERRUPTED)
    assert starting.lines[-1] == "warning: no longer waiting: run t-1 goes on"
    assert watching.lines[-1] == "warning: no longer watched: run t-1 goes on"
    assert json.loads(run("run", "list", "--json").stdout)[0]["status"] == "RUNNING"


def test_watching_a_parked_run_says_why_it_does_not_go_on(serve: Serve, shelf: Path) -> None:
    """It has not ended, and may go on: watching goes on too."""
    watching = serve("run", "watch", PARKED)

    line = watching.wait_for("is parked")
    watching.send(signal.SIGINT)

    assert line.startswith(f"warning: run {PARKED} is parked (unknown_workflow): ")
    assert watching.exit_code() == ExitCode.INTERRUPTED


def test_on_a_terminal_a_line_says_how_the_run_stands(serve: Serve, run: Run, folder: Path) -> None:
    """It is written over in place, on standard error, and is gone in the end."""
    dev = serve("dev", "depot.py:app")
    dev.wait_for("ready")
    command = ["run", "start", "naps", "--input", "[3]", "--run-id", "n-1", "--wait"]

    with Terminal() as terminal:
        waiting = Service(*command, folder=folder, stderr=terminal.end)
        code = waiting.exit_code()
        waiting.end()
    written = terminal.text

    assert (code, waiting.lines) == (ExitCode.OK, ['"rested"'])
    assert "n-1  RUNNING  no steps yet  timer in" in written
    assert written.endswith("\r\x1b[2K")
