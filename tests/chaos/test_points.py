"""Points are named by what a call carries, and a process that is armed dies at the right one."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.chaos.points import ArmedWatch, Notes, kinds_of


@pytest.mark.parametrize(
    ("point", "kinds"),
    [
        ("store.now:before", ["store.now:before"]),
        ("store.append[Start]:after", ["store.append[Start]:after"]),
        (
            "store.append[Completed,moves,InvokeScheduled,ExecutionAwaiting|Completed,Completed|Start]:before",
            [
                "store.append[Completed+moves]:before",
                "store.append[Completed]:before",
                "store.append[Start]:before",
            ],
        ),
        (
            "store.append[moves,ExecutionCompleted|]:after",
            ["store.append[end]:after", "store.append[nothing]:after"],
        ),
        ("broker.consume[work].exit:before", ["broker.consume[work].exit:before"]),
        ("delivery[RunHint]:after", ["delivery[RunHint]:after"]),
    ],
)
def test_a_point_has_a_kind_for_each_thing_that_it_carries(point: str, kinds: list[str]) -> None:
    """Facts by their names, moves by whether they end the run; the same kind once."""
    assert kinds_of(point) == kinds


def test_an_armed_process_dies_at_its_point(tmp_path: Path) -> None:
    """At the occurrence it was told, counted from when it was armed, and it says of what."""
    notes = tmp_path / "notes.jsonl"

    code = _forked(notes, armed=("store.now:after", 3), told=None)

    told = Notes(notes)
    told.look()
    assert code == -signal.SIGKILL
    assert told.points == {"store.now:before": ["start"], "store.now:after": ["start"]}
    ((point, _),) = told.deaths.values()
    assert point == "store.now:after"


def test_a_process_is_armed_while_it_works(tmp_path: Path) -> None:
    """With what the file says then."""
    told = tmp_path / "armed.json"
    told.write_text(json.dumps({"point": "store.now:before", "occurrence": 1}), "utf-8")

    code = _forked(tmp_path / "notes.jsonl", armed=None, told=told)

    assert code == -signal.SIGKILL


def test_a_process_that_is_not_armed_lives(tmp_path: Path) -> None:
    """Whatever it reaches."""
    assert _forked(tmp_path / "notes.jsonl", armed=("store.find:after", 1), told=None) == 0


def _forked(notes: Path, *, armed: tuple[str, int] | None, told: Path | None) -> int:
    """Reach points in a child, and return how it ended: it is told after the first round of five."""
    pid = os.fork()
    if not pid:
        watch = ArmedWatch(notes, {})
        if armed is not None:
            watch.arm(*armed)
        for _ in range(5):
            watch.reach("store.now:before")
            watch.reach("store.now:after")
            if told is not None:
                watch.obey(told)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_half_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    """Whoever reads may come while others write."""
    path = tmp_path / "notes.jsonl"
    notes = Notes(path)
    whole = json.dumps({"reached": "a:before", "stage": "work", "pid": 1, "at": 1.0}) + "\n"

    path.write_text(whole + whole[:10], "utf-8")
    notes.look()
    path.write_text(whole + whole.replace("a:", "b:"), "utf-8")
    notes.look()

    assert notes.points == {"a:before": ["work"], "b:before": ["work"]}
