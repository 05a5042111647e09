"""The whole system on Postgres and RabbitMQ, as people run it: commands, processes, signals, kills."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import until
from tests.scenario.fleet import Fleet


@pytest.fixture
def fleet(tmp_path: Path, fresh_postgres: str, fresh_rabbitmq: str) -> Iterator[Fleet]:
    """A database that was migrated, an empty virtual host, and an app."""
    made = Fleet(tmp_path, fresh_postgres, fresh_rabbitmq)
    assert made.run("db", "migrate").returncode == 0
    yield made
    made.close()


def test_runs_flow_through_workers_of_their_queues(fleet: Fleet) -> None:
    """Two pools, a keeper: each task is executed once, where its queue is served; doctor finds nothing."""
    fleet.start("keeper")
    fleet.start("worker", "yard.py:app")
    fleet.start("worker", "yard.py:app", "--queue", "heavy")

    results = [
        fleet.json_of("run", "start", "trip", "--input", f"[{cart}]", "--run-id", f"trip-{cart}", "--wait")
        for cart in range(3)
    ]

    assert [answer["result"] for answer in results] == [10 + 2, 20 + 3, 30 + 4]
    assert sorted(fleet.executed()) == sorted(
        (what, f"trip-{cart}", 1) for cart in range(3) for what in ("load", "load", "weigh")
    )
    assert fleet.run("journal", "verify", "--all").returncode == 0
    doctor = fleet.run("doctor")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr


def test_a_run_goes_on_when_its_worker_is_killed(fleet: Fleet) -> None:
    """Another worker takes the step over as its next attempt; signal, timer and result come as ever."""
    fleet.start("keeper")
    first = fleet.start("worker", "yard.py:app")
    fleet.run("run", "start", "gated", "--input", "[7]", "--run-id", "gated-1")
    until(lambda: ("slow-begins", "gated-1", 1) in fleet.executed())

    first.send(signal.SIGKILL)
    fleet.start("worker", "yard.py:app")
    until(lambda: ("slow-begins", "gated-1", 2) in fleet.executed())
    (fleet.folder / "open-the-gate").touch()
    fleet.run("run", "signal", "gated-1", "word", "--payload", '"go"')
    answer = fleet.json_of("run", "result", "gated-1")

    assert (answer["status"], answer["result"]) == ("COMPLETED", "7 go")
    assert ("slow-ends", "gated-1", 1) not in fleet.executed()


def test_a_worker_that_is_stopped_hands_its_work_over(fleet: Fleet) -> None:
    """SIGTERM: it ends with 0 within its grace, and another one goes on at once."""
    fleet.start("keeper")
    first = fleet.start("worker", "yard.py:app", "--grace", "0.5")
    fleet.run("run", "start", "gated", "--input", "[7]", "--run-id", "gated-1")
    until(lambda: ("slow-begins", "gated-1", 1) in fleet.executed())
    fleet.start("worker", "yard.py:app")

    first.send(signal.SIGTERM)

    assert first.exit_code() == 0
    until(lambda: ("slow-begins", "gated-1", 2) in fleet.executed())


def test_everything_waits_for_nobody_and_is_told_what_is_missing(fleet: Fleet) -> None:
    """A run that was started while nothing ran goes on when workers come; doctor says who is missing."""
    fleet.run("run", "start", "trip", "--input", "[1]", "--run-id", "early")
    alone = fleet.run("doctor")

    fleet.start("up", "yard.py:app", "--queue", "default", "--queue", "heavy")
    answer = fleet.json_of("run", "result", "early")

    assert alone.returncode == 1
    assert "no worker is running" in alone.stdout
    assert answer["result"] == 23
