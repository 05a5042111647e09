"""``projector`` and ``projector rebuild``, as users run them."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.processes import Service
from tidewheel.cli.exit_codes import ExitCode

Run = Callable[..., subprocess.CompletedProcess[str]]
Serve = Callable[..., Service]


def execute(folder: Path, sql: str) -> list[tuple[object, ...]]:
    """Execute a statement in the store of *folder*."""
    with contextlib.closing(sqlite3.connect(folder / "tidewheel.db", isolation_level=None)) as connection:
        return connection.execute(sql).fetchall()


@pytest.fixture
def lived(run: Run, serve: Serve, folder: Path) -> Path:
    """A folder whose store has runs, one of them open, and no snapshots."""
    dev = serve("dev", "depot.py:app")
    dev.wait_for("ready")
    for number in range(3):
        run("run", "start", "total", "--input", f"[{number}, 2]", "--run-id", f"t-{number}", "--wait")
    run("run", "start", "waits", "--run-id", "w-1")
    dev.wait_for("run w-1 (waits) started")
    dev.send(signal.SIGTERM)
    assert dev.exit_code() == ExitCode.OK
    execute(folder, "DELETE FROM tidewheel_snapshots")
    return folder


def test_a_rebuild_makes_the_snapshots_that_the_journals_give(run: Run, lived: Path) -> None:
    """First it only says so, then it does it, and then there is nothing left to do."""
    dry = run("projector", "rebuild", "--dry-run", "--json")
    before = execute(lived, "SELECT count(*) FROM tidewheel_snapshots")
    done = run("projector", "rebuild")
    again = run("projector", "rebuild", "--json")

    assert dry.returncode == ExitCode.FINDING
    assert (json.loads(dry.stdout)["written"], before) == (4, [(0,)])
    assert (done.returncode, done.stdout) == (ExitCode.OK, "4 runs compared: 0 level, 4 written\n")
    assert (again.returncode, json.loads(again.stdout)) == (
        ExitCode.OK,
        {
            "runs": 4,
            "level": 4,
            "written": 0,
            "gone": 0,
            "unreadable": 0,
            "unreadable_runs": [],
            "dry_run": False,
        },
    )
    rows = execute(lived, "SELECT run_id, status FROM tidewheel_snapshots ORDER BY run_id")
    assert rows == [("t-0", "COMPLETED"), ("t-1", "COMPLETED"), ("t-2", "COMPLETED"), ("w-1", "RUNNING")]


def test_one_run_is_rebuilt_alone(run: Run, lived: Path) -> None:
    """One that does not exist is told of."""
    one = run("projector", "rebuild", "--run", "t-1")
    none = run("projector", "rebuild", "--run", "nope")

    assert (one.returncode, one.stdout) == (ExitCode.OK, "1 run compared: 0 level, 1 written\n")
    assert execute(lived, "SELECT run_id FROM tidewheel_snapshots") == [("t-1",)]
    assert none.returncode == ExitCode.NOT_FOUND
    assert "there is no run 'nope'" in none.stderr


def test_a_damaged_journal_is_told_of_and_the_others_are_rebuilt(run: Run, lived: Path) -> None:
    """What cannot be read cannot be projected."""
    execute(
        lived,
        "UPDATE tidewheel_journal SET checksum = checksum + 1"
        " WHERE run_key = (SELECT run_key FROM tidewheel_runs WHERE run_id = 't-1')",
    )

    found = run("projector", "rebuild")

    assert found.returncode == ExitCode.FINDING
    assert found.stdout == "4 runs compared: 0 level, 3 written, 1 that cannot be read\n"
    assert "the journal of run t-1 cannot be read" in found.stderr


def test_a_rebuild_of_no_store_is_refused(run: Run, folder: Path) -> None:
    """And leaves none behind."""
    found = run("projector", "rebuild")

    assert found.returncode == ExitCode.UNREACHABLE
    assert not (folder / "tidewheel.db").exists()


def test_a_projector_runs_until_it_is_told_to_stop(run: Run, serve: Serve, lived: Path) -> None:
    """It says when it works, and leaves nothing behind that others would wait for."""
    projector = serve("projector", "--json")
    projector.wait_for("ready")
    members = execute(lived, "SELECT count(*) FROM tidewheel_projectors")
    projector.send(signal.SIGTERM)

    assert projector.exit_code() == ExitCode.OK
    assert members == [(1,)]
    assert execute(lived, "SELECT count(*) FROM tidewheel_projectors") == [(0,)]


SALES = """
from dataclasses import dataclass, replace

from tidewheel import App, PublicEvent

app = App("counting")


@app.projection
@dataclass(frozen=True)
class Ended:
    workflow: str
    count: int = 0

    @classmethod
    def key(cls, event: PublicEvent) -> str | None:
        return event.workflow if event.event_type == "RunCompleted" else None

    def reduce(self, event: PublicEvent) -> "Ended":
        return replace(self, count=self.count + 1)
"""


def test_the_table_of_a_projection_is_filled_again(run: Run, lived: Path) -> None:
    """It need not be there; an unknown projection is told of, as are options that do not go together."""
    (lived / "ended.py").write_text(SALES, "utf-8")
    command = ("projector", "rebuild", "--app", "ended.py:app")

    dry = run(*command, "--projection", "Ended", "--dry-run", "--json")
    done = run(*command, "--projection", "Ended")
    assert done.returncode == ExitCode.OK, done.stderr
    execute(lived, "UPDATE ended SET count = 70")
    again = run(*command, "--projection", "Ended")
    unknown = run(*command, "--projection", "Begun")
    alone = run(*command)

    assert (dry.returncode, json.loads(dry.stdout)["runs"]) == (ExitCode.OK, 4)
    for told in (done, again):
        assert (told.returncode, told.stdout) == (ExitCode.OK, "projection 'Ended': 4 runs read\n")
    assert execute(lived, "SELECT workflow, count FROM ended") == [("total", 3)]
    assert unknown.returncode == ExitCode.NOT_FOUND
    assert "app 'counting' has no projection 'Begun'" in unknown.stderr
    assert "it has: Ended" in unknown.stderr
    assert alone.returncode == ExitCode.INVALID
    assert "--projection and --app together" in alone.stderr
