"""``--processes N``: several workers under one supervisor, as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.processes import Service, children_of, is_alive, until
from tidewheel.cli.exit_codes import ExitCode

Run = Callable[..., subprocess.CompletedProcess[str]]
Serve = Callable[..., Service]


def _started(serve: Serve, *options: str) -> Service:
    """Start a supervisor with two workers and a keeper; they are ready when this returns."""
    service = serve("up", "depot.py:app", "--processes", "2", *options)
    service.wait_for(" ready")
    return service


def _workers(service: Service) -> list[int]:
    return [service.child("worker-1"), service.child("worker-2")]


def _holding(run: Run, folder: Path, count: int) -> list[Path]:
    """Start runs that have a step in hand until a file is there; return those files."""
    gates = [folder / f"gate-{number}" for number in range(count)]
    for gate in gates:
        run("run", "start", "holds", "--input", json.dumps([str(gate)]), "--run-id", gate.name)
    for gate in gates:
        until(Path(f"{gate}.begun").exists)
    return gates


def _result(run: Run, run_id: str) -> object:
    return json.loads(run("run", "result", run_id, "--json").stdout).get("result")


def test_workers_and_a_keeper_get_a_process_each(run: Run, serve: Serve, folder: Path) -> None:
    """One banner names them, each is a worker of its own to the doctor, and lines say whose they are."""
    up = _started(serve)

    ran = run("run", "start", "total", "--input", "[40, 2]", "--run-id", "t-1", "--wait")
    nap = run("run", "start", "naps", "--input", "[0.1]", "--wait")
    doctor = run("doctor")
    line = up.wait_for("run t-1 (total) completed")
    up.send(signal.SIGTERM)

    assert (ran.stdout, nap.stdout) == ("42\n", '"rested"\n')
    assert "2 workers alive" in doctor.stdout
    assert any(f"[worker-{number} {up.child(f'worker-{number}')}] " in line for number in (1, 2))
    assert sum(each.startswith("tidewheel up: app 'depot' of depot.py:app") for each in up.lines) == 1
    assert up.exit_code() == ExitCode.OK
    assert up.lines[-1].endswith("stopped")


def test_a_worker_that_dies_is_started_again(run: Run, serve: Serve, folder: Path) -> None:
    """How it ended is told; what it had in hand is tried again, and the others are not disturbed."""
    up = _started(serve)
    first, second = _workers(up)
    gates = _holding(run, folder, 4)

    os.kill(first, signal.SIGKILL)
    up.wait_for("worker-1 was ended by SIGKILL; it is started again in")
    again = up.wait_for("works again")
    for gate in gates:
        gate.touch()

    assert [_result(run, gate.name) for gate in gates] == [[3, "held"]] * 4
    assert "worker-1 (" in again
    assert is_alive(second)
    assert run("journal", "verify", "--all").returncode == ExitCode.OK


def test_told_to_stop_all_finish_what_is_in_hand(run: Run, serve: Serve, folder: Path) -> None:
    """Each worker within its grace; then the supervisor ends with 0."""
    up = _started(serve)
    gates = _holding(run, folder, 4)

    up.send(signal.SIGTERM)
    for name in ("worker-1", "worker-2"):
        up.wait_for(f"[{name} {up.child(name)}] stopping")
    for gate in gates:
        gate.touch()

    assert up.exit_code() == ExitCode.OK
    for gate in gates:
        journal = json.loads(run("run", "journal", gate.name, "--json").stdout)
        assert "held" in [entry["data"]["result"].get("ok") for entry in journal if "result" in entry["data"]]
        assert Path(f"{gate}.begun").read_text() == "begun\n"


def test_what_outlasts_the_grace_is_handed_back(run: Run, serve: Serve, folder: Path) -> None:
    """The processes end with 0 all the same, and whoever comes next begins the step again."""
    up = _started(serve, "--grace", "0.2")
    (gate,) = _holding(run, folder, 1)

    up.send(signal.SIGTERM)
    code = up.exit_code()
    gate.touch()
    _started(serve)

    assert code == ExitCode.OK
    assert _result(run, gate.name) == [3, "held"]
    journal = json.loads(run("run", "journal", gate.name, "--json").stdout)
    errors = [entry["data"]["error"]["type"] for entry in journal if entry["type"] == "InvokeRetrying"]
    assert errors == ["WorkerStopped"]


def test_told_twice_all_end_at_once(run: Run, serve: Serve, folder: Path) -> None:
    """Whatever is in hand; no process is left."""
    up = _started(serve)
    children = children_of(up.pid)
    _holding(run, folder, 2)

    up.send(signal.SIGINT)
    up.wait_for("a second signal ends at once")
    up.send(signal.SIGTERM)

    assert up.exit_code() == ExitCode.INTERRUPTED
    assert len(children) == 5
    until(lambda: not any(map(is_alive, children)))


def test_a_signal_to_every_process_is_one_signal(run: Run, serve: Serve, folder: Path) -> None:
    """A process manager may tell all of them, and the supervisor tells them again: they still finish."""
    up = _started(serve)
    gates = _holding(run, folder, 2)

    for pid in [*children_of(up.pid), up.pid]:
        os.kill(pid, signal.SIGTERM)
    for name in ("worker-1", "worker-2"):
        up.wait_for(f"[{name} {up.child(name)}] stopping")
    for gate in gates:
        gate.touch()

    assert up.exit_code() == ExitCode.OK
    assert [Path(f"{gate}.begun").read_text() for gate in gates] == ["begun\n"] * 2


def test_a_killed_supervisor_leaves_nobody_behind(run: Run, serve: Serve, folder: Path) -> None:
    """Its workers end with it, also one whose code does not let go of the event loop."""
    up = _started(serve)
    children = children_of(up.pid)
    _holding(run, folder, 2)

    up.send(signal.SIGKILL)

    assert len(children) == 5
    until(lambda: not any(map(is_alive, children)))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing.py:app"], ExitCode.NOT_FOUND, "there is no file 'missing.py'"),
        (["broken.py:app"], ExitCode.INVALID, "cannot be imported: ZeroDivisionError"),
        (["depot.py:app", "--slots", "0"], ExitCode.INVALID, "slots"),
        (["depot.py:app", "--processes", "0"], ExitCode.INVALID, "processes"),
        (["depot.py:app", "--store", "memory://"], ExitCode.INVALID, "memory:// belongs to one process"),
        (["depot.py:app", "--store", "sqlite:////dev/null/x.db"], ExitCode.UNREACHABLE, "/dev/null/x.db"),
    ],
)
def test_what_can_never_work_is_said_once(
    serve: Serve, tmp_path: Path, arguments: list[str], code: ExitCode, message: str
) -> None:
    """No child is started again that would end the same way; the exit code is the child's."""
    (tmp_path / "broken.py").write_text("1 / 0\n")

    worker = serve("worker", *arguments, *([] if "--processes" in arguments else ["--processes", "3"]))

    assert worker.exit_code() == code
    assert sum(message in line and line.startswith("error: ") for line in worker.lines) == 1
    assert "started again" not in worker.text


def test_a_worker_that_can_no_longer_start_ends_all(run: Run, serve: Serve, folder: Path) -> None:
    """Its app was broken while it ran: looping would not mend it, so everything is stopped, with its code."""
    up = _started(serve)
    (folder / "depot.py").write_text("1 / 0\n")

    os.kill(up.child("worker-1"), signal.SIGKILL)

    assert up.exit_code() == ExitCode.INVALID
    assert "worker-1 ended with exit code 2, and would again: everything is stopped" in up.text
    assert not is_alive(up.child("worker-2"))


def test_a_worker_that_does_not_reach_its_store_again_is_tried_again(
    run: Run, serve: Serve, folder: Path
) -> None:
    """Everything worked before: it will again, and whoever still works is not stopped for it."""
    up = _started(serve)
    store, aside = folder / "tidewheel.db", folder / "aside.db"
    store.rename(aside)
    store.write_bytes(b"not a database" * 100)

    os.kill(up.child("worker-1"), signal.SIGKILL)
    up.wait_for("worker-1 ended with exit code 4; it is started again in")
    aside.replace(store)
    up.wait_for("works again")

    ran = run("run", "start", "total", "--input", "[1, 2]", "--wait")
    assert ran.stdout == "3\n"
    assert is_alive(up.child("worker-2"))


def test_lines_for_programs_say_which_process_they_are_of(run: Run, serve: Serve, folder: Path) -> None:
    """Each is JSON, on standard output; the supervisor's own have the processes."""
    worker = serve("worker", "depot.py:app", "--processes", "2", "--json")
    ready = json.loads(worker.wait_for('"ready"'))

    worker.send(signal.SIGTERM)
    code = worker.exit_code()

    lines = [json.loads(line) for line in worker.lines]
    stopped = {line.get("process"): line.get("pid") for line in lines if line["message"] == "stopped"}
    assert code == ExitCode.OK
    assert (ready["app"], ready["queues"], ready["pid"]) == ("depot", ["default"], worker.pid)
    assert "total" in ready["workflows"]
    assert stopped == {**ready["processes"], None: None}


def test_several_queues_and_slots_are_taken_from_the_command_line(
    run: Run, serve: Serve, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With commas or one by one; what the environment says is for whoever says nothing."""
    monkeypatch.setenv("TIDEWHEEL_QUEUES", "elsewhere")
    monkeypatch.setenv("TIDEWHEEL_PROCESSES", "2")
    worker = serve("worker", "depot.py:app", "--queue", "a,b", "--queue", "c", "--slots", "3")
    worker.wait_for(" ready")

    ran = run("run", "start", "total", "--input", "[1, 2]", "--queue", "c", "--wait")
    doctor = run("doctor")

    assert "  namespace  default, queues a, b, c" in worker.lines
    assert ran.stdout == "3\n"
    assert "2 workers alive; queues: a, b, c;" in doctor.stdout
