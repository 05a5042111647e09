"""``tidewheel db``: the store's schema, and how much is in it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.cli.shelves import change
from tidewheel.cli.exit_codes import ExitCode

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_a_new_store_is_made_and_then_up_to_date(run: Run, folder: Path) -> None:
    """Migrating twice changes nothing."""
    first = run("db", "migrate")
    again = run("db", "migrate", "--json")

    assert first.returncode == again.returncode == ExitCode.OK
    assert first.stderr == "sqlite:///tidewheel.db: applied 0001, 0002, 0003, 0004, 0005\n"
    assert json.loads(again.stdout) == {"store": "sqlite:///tidewheel.db", "revision": "0005", "applied": []}


def test_the_status_counts_what_is_there(run: Run, shelf: Path) -> None:
    """Schema, size and runs, for people and for programs."""
    plain = run("db", "status")
    as_json = json.loads(run("db", "status", "--json").stdout)

    assert plain.returncode == ExitCode.OK
    assert "schema     0005, up to date" in plain.stdout
    assert "runs       2 open runs (1 parked), 3 ended" in plain.stdout
    assert as_json["up_to_date"] is True
    assert as_json["runs"] == {"open": 2, "ended": 3, "parked": 1}
    assert as_json["size_bytes"] > 0


def test_a_store_of_a_newer_release_is_told_and_left_alone(run: Run, shelf: Path) -> None:
    """Looking is a finding; migrating it back is not possible."""
    change("UPDATE tidewheel_version SET version_num = '9999'")

    status = run("db", "status")
    migrated = run("db", "migrate")

    assert status.returncode == ExitCode.FINDING
    assert "schema     9999, this release needs 0005" in status.stdout
    assert migrated.returncode == ExitCode.UNREACHABLE
    assert "upgrade Tidewheel" in migrated.stderr


def test_a_store_in_memory_has_no_schema(run: Run, folder: Path) -> None:
    """There is nothing to migrate."""
    ran = run("db", "migrate", "--store", "memory://")

    assert ran.returncode == ExitCode.INVALID
    assert "no schema to migrate" in ran.stderr
