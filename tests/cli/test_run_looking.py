"""``run list``, ``show``, ``journal`` and ``watch``, on a store that nobody serves."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.processes import Terminal
from tests.cli.shelves import CANCELLED, COMPLETED, FAILED, PARKED, WAITING, change
from tidewheel import Client
from tidewheel.broker.memory import MemoryBroker
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.journal import events as ev
from tidewheel.journal.jsonform import loads
from tidewheel.store.append import Append, Moves, Retrying, Started, Verdict
from tidewheel.store.opening import open_store
from tidewheel.store.records import RunRef

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_runs_are_listed_newest_first(run: Run, shelf: Path) -> None:
    """A table for people on standard output, how many beside it."""
    ran = run("run", "list")

    head, *rows = ran.stdout.splitlines()
    assert ran.returncode == ExitCode.OK
    assert head.split() == ["RUN", "WORKFLOW", "STATUS", "STARTED", "TOOK"]
    assert [row.split()[0] for row in rows] == [PARKED, WAITING, CANCELLED, FAILED, COMPLETED]
    assert "parked (unknown_workflow)" in rows[0]
    assert ran.stderr == "5 runs\n"


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (["--status", "failed"], [FAILED]),
        (["--status", "RUNNING"], [PARKED, WAITING]),
        (["--workflow", "waits"], [WAITING, CANCELLED]),
        (["--workflow", "waits", "--limit", "1"], [WAITING]),
        (["--parked"], [PARKED]),
        (["--namespace", "other"], []),
    ],
)
def test_a_list_can_be_narrowed(run: Run, shelf: Path, flags: list[str], found: list[str]) -> None:
    """As JSON it is a list of runs."""
    ran = run("run", "list", "--json", *flags)

    assert (ran.returncode, ran.stderr) == (ExitCode.OK, "")
    assert [each["run_id"] for each in json.loads(ran.stdout)] == found


def test_a_listed_run_says_how_it_stands(run: Run, shelf: Path) -> None:
    """Programs get the row without asking for each run."""
    (parked,) = json.loads(run("run", "list", "--json", "--parked").stdout)

    assert parked["status"] == "RUNNING"
    assert parked["parked"] == "unknown_workflow"
    assert "nobody" in parked["parked_reason"]
    assert parked["created_at"].endswith("Z")
    assert parked["ended_at"] is None


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--status", "asleep"], "status 'ASLEEP' is none of PENDING"),
        (["--limit", "0"], "list 1 to 1000 runs at a time"),
        (["--workflow", "a b"], "workflow"),
        (["--namespace", "a b"], "namespace"),
        (["--store", "tidewheel.db"], "store: this is no URL"),
        (["--store", "mysql://x"], "mysql:// is not a store of this release"),
    ],
)
def test_a_question_without_an_answer_is_invalid(
    run: Run, shelf: Path, flags: list[str], message: str
) -> None:
    """The refusal says what to write."""
    ran = run("run", "list", *flags)

    assert (ran.returncode, ran.stdout) == (ExitCode.INVALID, "")
    assert message in ran.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["run", "list"],
        ["run", "show", "x"],
        ["run", "watch", "x"],
        ["run", "result", "x"],
        ["doctor"],
        ["db", "status"],
    ],
)
def test_looking_makes_no_store(run: Run, folder: Path, command: list[str]) -> None:
    """Who looks in the wrong folder is told so, and no empty file is left behind."""
    plain = run(*command)
    as_json = run(*command, "--json")

    assert plain.returncode == as_json.returncode == ExitCode.UNREACHABLE
    assert plain.stderr.startswith("error: there is no store at sqlite:///tidewheel.db (/")
    assert json.loads(as_json.stderr)["error"]["type"] == "StoreUnavailable"
    assert list(folder.glob("*.db")) == []


@pytest.mark.parametrize("command", ["show", "journal", "watch", "result"])
def test_a_run_that_is_not_there_is_not_found(run: Run, shelf: Path, command: str) -> None:
    """Whichever way it is looked at."""
    ran = run("run", command, "nope")
    invalid = run("run", command, "no pe")

    assert (ran.returncode, ran.stdout) == (ExitCode.NOT_FOUND, "")
    assert ran.stderr == "error: there is no run 'nope' in namespace 'default'\n"
    assert invalid.returncode == ExitCode.INVALID


def test_a_run_is_shown_with_its_timeline(run: Run, shelf: Path) -> None:
    """A header, then a row for each thing the run asked for."""
    ran = run("run", "show", COMPLETED)

    first, second, *rest = ran.stdout.splitlines()
    assert ran.returncode == ExitCode.OK
    assert first.startswith(f"{COMPLETED}  total  COMPLETED")
    assert second.startswith("started 2")
    assert "queue default" in second
    assert any(line.startswith("0 add") and "█" in line for line in rest)
    assert "\x1b" not in ran.stdout


def test_a_timeline_can_be_plain_ascii(run: Run, shelf: Path) -> None:
    """Not every place shows more."""
    ran = run("run", "show", COMPLETED, "--ascii", "--all")

    assert ran.stdout.isascii()
    assert "= running" in ran.stdout


def test_a_parked_run_says_why_and_what_to_do(run: Run, shelf: Path) -> None:
    """The journal does not tell that a run is parked; its row does."""
    plain = run("run", "show", PARKED)
    snapshot = json.loads(run("run", "show", PARKED, "--json").stdout)

    assert "parked (unknown_workflow): " in plain.stdout
    assert "start a worker whose app has this workflow" in plain.stdout
    assert snapshot["parked"] == "unknown_workflow"


def test_a_step_that_waits_for_an_operator_says_why(run: Run, folder: Path) -> None:
    """What it failed with is not only in the journal, and neither is what to do."""

    async def park() -> None:
        store = await open_store("sqlite:///tidewheel.db")
        client = await Client.connect(store, MemoryBroker().connect())
        handle = await client.start("order", run_id="o-1")
        loaded = await store.load(RunRef("default", "o-1"))
        assert loaded is not None
        scheduled = ev.InvokeScheduled(promise_id="0", kind="function", function_name="charge", input=[])
        moves = Moves(
            expected=loaded.run.token,
            token=b"t" * 16,
            base_seq=loaded.run.last_seq,
            events=[scheduled],
            owner="w-1",
        )
        error = ev.Error(type="ValueError", message="card expired")
        begun = Started(path="0", attempt=1, owner="w-1")
        failed = Retrying(path="0", attempt=1, error=error, retry_at=None, owner="w-1")
        await store.append([Append(run=loaded.run.ref, moves=moves)])
        answers = await store.append([Append(run=loaded.run.ref, facts=(begun, failed))])
        assert answers[0].verdicts == [Verdict.WRITTEN, Verdict.WRITTEN]
        assert await handle.status() == "RUNNING"
        await client.close()
        await store.close()

    asyncio.run(park())
    change("UPDATE tidewheel_runs SET strikes = 2")

    ran = run("run", "show", "o-1")
    snapshot = json.loads(run("run", "show", "o-1", "--json").stdout)

    assert "step 0 (charge) is parked: ValueError: card expired\n" in ran.stdout
    assert "`tidewheel run cancel o-1` gives this one up" in ran.stdout
    assert "workers died with it, 2 times so far" in ran.stdout
    assert snapshot["strikes"] == 2


def test_shown_as_json_a_run_is_its_snapshot(run: Run, shelf: Path) -> None:
    """With the contract's names."""
    done = json.loads(run("run", "show", COMPLETED, "--json").stdout)
    failed = json.loads(run("run", "show", FAILED, "--json").stdout)

    assert (done["runId"], done["status"], done["workflow"]) == (COMPLETED, "COMPLETED", "total")
    assert [step["status"] for step in done["steps"]] == ["SUCCESS"]
    assert failed["status"] == "FAILED"
    assert failed["rootCause"]["message"] == "breaks: out of stock"


def test_a_journal_is_printed_line_by_line(run: Run, shelf: Path) -> None:
    """One line per event: number, time, type, and as much of the rest as fits."""
    ran = run("run", "journal", COMPLETED)

    lines = ran.stdout.splitlines()
    assert ran.returncode == ExitCode.OK
    assert [line.split()[0] for line in lines] == [str(place) for place in range(len(lines))]
    assert "ExecutionStarted" in lines[0]
    assert "ExecutionCompleted" in lines[-1]
    assert max(map(len, lines)) <= 160


def test_a_journal_as_json_is_what_files_hold(run: Run, shelf: Path) -> None:
    """What is written to a file can be verified and replayed from it."""
    ran = run("run", "journal", COMPLETED, "--json")
    (shelf / "sum.json").write_text(ran.stdout)

    assert len(loads(ran.stdout.encode())) == len(json.loads(ran.stdout))
    assert run("journal", "verify", "--file", "sum.json").returncode == ExitCode.OK
    assert run("replay", "depot.py:app", "--file", "sum.json").returncode == ExitCode.OK


@pytest.mark.parametrize(
    ("run_id", "code", "last"),
    [
        (COMPLETED, ExitCode.OK, "completed: 3"),
        (FAILED, ExitCode.FINDING, "failed: ValueError: breaks: out of stock"),
        (CANCELLED, ExitCode.FINDING, "cancelled: changed my mind"),
    ],
)
def test_watching_a_run_that_has_ended_tells_its_story(
    run: Run, shelf: Path, run_id: str, code: ExitCode, last: str
) -> None:
    """The exit code is how it ended; not on a terminal, lines are plain."""
    ran = run("run", "watch", run_id)

    assert (ran.returncode, ran.stderr) == (code, "")
    first, *_, end = ran.stdout.splitlines()
    assert first.startswith("    0.000 s  ")
    assert last in end


def test_watching_as_json_gives_the_journal_line_by_line(run: Run, shelf: Path) -> None:
    """Each line is an entry as the journal has it."""
    watched = run("run", "watch", COMPLETED, "--json")
    journal = run("run", "journal", COMPLETED, "--json")

    assert [json.loads(line) for line in watched.stdout.splitlines()] == json.loads(journal.stdout)


def test_on_a_terminal_a_timeline_is_coloured(shelf: Path) -> None:
    """Unless NO_COLOR says otherwise."""
    command = [sys.executable, "-m", "tidewheel.cli.main", "run", "show", COMPLETED]

    with Terminal() as terminal:
        subprocess.run(command, stdout=terminal.end, env=os.environ | {"TERM": "xterm"}, check=True)
    with Terminal() as other:
        subprocess.run(command, stdout=other.end, env=os.environ | {"NO_COLOR": "1"}, check=True)

    assert "\x1b[32m" in terminal.text
    assert "\x1b" not in other.text


def test_a_journal_that_cannot_be_read_is_no_traceback(run: Run, shelf: Path) -> None:
    """It is a finding, with the place and what to do."""
    change(
        "UPDATE tidewheel_journal SET data = x'00' WHERE first_seq = 1 AND run_key = "
        "(SELECT run_key FROM tidewheel_runs WHERE run_id = ?)",
        COMPLETED,
    )

    ran = run("run", "show", COMPLETED)

    assert (ran.returncode, ran.stdout) == (ExitCode.FINDING, "")
    assert f"event 1 of run {COMPLETED} cannot be read" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("arrange", "message"),
    [
        (lambda: Path("tidewheel.db").write_bytes(b"not a database" * 100), "is not a SQLite database"),
        (lambda: change("UPDATE tidewheel_version SET version_num = '9999'"), "of a newer release"),
    ],
)
def test_a_store_that_cannot_be_used_is_unreachable(
    run: Run, shelf: Path, arrange: Callable[[], object], message: str
) -> None:
    """Exit code 4, and what to do about it."""
    for file in shelf.glob("tidewheel.db-*"):
        file.unlink()
    arrange()

    ran = run("run", "list")

    assert (ran.returncode, ran.stdout) == (ExitCode.UNREACHABLE, "")
    assert message in ran.stderr
