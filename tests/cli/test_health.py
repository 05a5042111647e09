"""What processes say when they are probed over HTTP, and how they wait for what they cannot reach yet."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.processes import Service, probe, until
from tidewheel.cli.exit_codes import ExitCode

Run = Callable[..., subprocess.CompletedProcess[str]]
Serve = Callable[..., Service]

HEALTH = ("--health", "127.0.0.1:0")


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold the lock of a file in which there is no store yet, so that none can be made."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")


def test_a_worker_is_ready_until_it_is_told_to_stop(run: Run, serve: Serve, folder: Path) -> None:
    """While it finishes what is in hand it takes no more, and lives."""
    worker = serve("worker", "depot.py:app", *HEALTH)
    until(lambda: probe(worker, "/readyz")[0] == 200)
    ready = probe(worker, "/readyz")
    run("run", "start", "holds", "--input", '["gate"]')
    until((folder / "gate.begun").exists)

    worker.send(signal.SIGTERM)
    worker.wait_for("stopping")
    draining, lives = probe(worker, "/readyz"), probe(worker, "/healthz")
    (folder / "gate").touch()

    assert ready == (200, {"status": "ok", "checks": {"store": "ok", "broker": "ok", "consuming": "ok"}})
    assert draining == (503, {"status": "failing", "checks": {"draining": "it was told to stop"}})
    assert lives == (200, {"status": "ok", "checks": {"loop": "ok"}})
    assert worker.exit_code() == ExitCode.OK


def test_a_keeper_can_be_probed_too(run: Run, serve: Serve, folder: Path) -> None:
    """It needs the store and the broker; that the store has gone is named."""
    keeper = serve("keeper", *HEALTH)
    keeper.wait_for(" ready")
    ready = probe(keeper, "/readyz")

    (folder / "tidewheel.db").rename(folder / "gone.db")
    until(lambda: probe(keeper, "/readyz")[0] == 503)
    _, gone = probe(keeper, "/readyz")

    assert ready == (200, {"status": "ok", "checks": {"store": "ok", "broker": "ok"}})
    assert gone["checks"]["broker"] == "ok"
    assert "tidewheel.db is not there" in gone["checks"]["store"]


def test_a_supervisor_tells_of_a_child_that_stands_still(run: Run, serve: Serve, folder: Path) -> None:
    """That makes it not live, and passes."""
    worker = serve("worker", "depot.py:app", "--processes", "2", *HEALTH)
    worker.wait_for(" ready")
    well = probe(worker, "/healthz")
    second = worker.child("worker-2")

    os.kill(second, signal.SIGSTOP)
    until(lambda: probe(worker, "/healthz")[0] == 503)
    _, silent = probe(worker, "/healthz")
    os.kill(second, signal.SIGCONT)
    until(lambda: probe(worker, "/healthz")[0] == 200)

    assert well == (200, {"status": "ok", "checks": {"loop": "ok", "worker-1": "ok", "worker-2": "ok"}})
    assert silent["checks"]["worker-1"] == "ok"
    assert "has said nothing for" in silent["checks"]["worker-2"]
    until(lambda: probe(worker, "/readyz")[0] == 200)
    worker.send(signal.SIGTERM)
    assert worker.exit_code() == ExitCode.OK


def test_a_supervisor_tells_of_a_child_that_was_killed(run: Run, serve: Serve, folder: Path) -> None:
    """That makes it not ready until another one works."""
    worker = serve("worker", "depot.py:app", "--processes", "2", *HEALTH)
    worker.wait_for(" ready")

    os.kill(worker.child("worker-1"), signal.SIGKILL)
    worker.wait_for("worker-1 was ended by SIGKILL")
    broken = probe(worker, "/readyz")
    until(lambda: probe(worker, "/readyz")[0] == 200)

    assert broken == (
        503,
        {"status": "failing", "checks": {"worker-1": "is being started", "worker-2": "ok"}},
    )
    assert probe(worker, "/healthz")[0] == 200
    worker.send(signal.SIGTERM)
    assert worker.exit_code() == ExitCode.OK


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_waits_for_a_store_that_cannot_be_used_yet(
    run: Run, serve: Serve, folder: Path, processes: str
) -> None:
    """It says what it waits for, lives, and is ready once the store is there."""
    with _locked(folder / "tidewheel.db"):
        worker = serve("worker", "depot.py:app", "--processes", processes, *HEALTH)
        said = worker.wait_for("waits for the store, for up to")
        until(lambda: "tidewheel.db is locked" in json.dumps(probe(worker, "/readyz")))
        lives, waits = probe(worker, "/healthz"), probe(worker, "/readyz")
    worker.wait_for(" ready")
    until(lambda: probe(worker, "/readyz")[0] == 200)

    assert "tidewheel.db is locked" in said
    assert lives[0] == 200
    assert waits[0] == 503
    assert run("run", "start", "total", "--input", "[1, 2]", "--wait").stdout == "3\n"


@pytest.mark.parametrize("command", [["keeper"], ["worker", "depot.py:app", "--processes", "2"]])
def test_the_wait_for_a_store_is_bounded(
    serve: Serve, folder: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ``TIDEWHEEL_CONNECT_TIMEOUT`` the process ends: whoever started it decides what then."""
    monkeypatch.setenv("TIDEWHEEL_CONNECT_TIMEOUT", "1")

    with _locked(folder / "tidewheel.db"):
        process = serve(*command)
        code = process.exit_code()

    assert code == ExitCode.UNREACHABLE
    assert sum(line.startswith("error: ") and "is locked" in line for line in process.lines) == 1


def test_a_process_that_waits_can_be_told_to_stop(serve: Serve, folder: Path) -> None:
    """It has nothing in hand: it ends with 0, long before its time is over."""
    with _locked(folder / "tidewheel.db"):
        keeper = serve("keeper")
        keeper.wait_for("waits for the store")
        keeper.send(signal.SIGTERM)
        code = keeper.exit_code()

    assert code == ExitCode.OK
    assert keeper.lines[-1].endswith("stopped")


def test_an_address_that_is_taken_is_refused(serve: Serve, run: Run, folder: Path) -> None:
    """At the start, with the address in the message."""
    keeper = serve("keeper", *HEALTH)
    address = keeper.wait_for("health at").partition("http://")[2].partition("/")[0]

    second = run("keeper", "--health", address)
    third = run("keeper", "--health", "nowhere")

    assert second.returncode == third.returncode == ExitCode.INVALID
    assert f"--health {address} cannot be listened on" in second.stderr
    assert "'nowhere' is no address; write HOST:PORT" in third.stderr
