"""Points at which a worker of a fleet can be made to die, armed from outside while it works.

The points are those of ``tests.faults.crash_points``: every call to a store or a broker, before and after.
Many runs share a worker here, so a call is named by the kinds of what it carries and not by all of it:
``store.append[Completed+moves]:after``. A worker is armed when it is started, or later by SIGUSR1 and a file.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tests.faults.crash_points import Watch

#: While a worker begins, while it works, and after it was told to stop.
Stage: TypeAlias = Literal["start", "work", "stop"]

_POINT = re.compile(r"(?P<call>[^\[:]+)(?:\[(?P<detail>.*)\])?(?P<when>(?:\.exit)?:.*)", re.DOTALL)
#: Moves that end a run.
_ENDS = ("ExecutionCompleted", "ExecutionFailed", "ExecutionCancelled")


def kinds_of(point: str) -> list[str]:
    """Return the kinds of a point, one for each kind of thing that the call carries."""
    match = _POINT.fullmatch(point)
    assert match is not None, point
    call, detail, when = match["call"], match["detail"], match["when"]
    if detail is None:
        return [f"{call}{when}"]
    kinds = dict.fromkeys(_kind(part) for part in detail.split("|"))
    return [f"{call}[{kind}]{when}" for kind in kinds]


def _kind(part: str) -> str:
    """Return what one append, message or queue is about: its facts, and whether the code moved or ended."""
    words, separator, moves = part.partition("moves")
    named = dict.fromkeys(word for word in words.split(",") if word)
    if separator:
        named |= dict.fromkeys(["end" if any(end in moves for end in _ENDS) else "moves"])
    return "+".join(named) or "nothing"


class ArmedWatch(Watch):
    """Hears of every point; dies at the one it is armed with, and writes down what it died of.

    *notes* is a file that all workers append to. Points, and stages of a worker's life in which they are
    reached, that are not *known* are noted there too, so that whoever arms workers learns of them.
    """

    def __init__(self, notes: Path, known: Mapping[str, Iterable[Stage]]) -> None:
        super().__init__()
        self._notes = notes
        self._known = {(kind, stage) for kind, stages in known.items() for stage in stages}
        self._fatal_kind: str | None = None
        self._left = 0
        #: Where in its life the worker is, as its program knows.
        self.stage: Stage = "start"

    def arm(self, kind: str, occurrence: int) -> None:
        """Die when *kind* is reached for the *occurrence*-th time from now on."""
        self._left = occurrence
        self._fatal_kind = kind

    def obey(self, file: Path) -> None:
        """Be armed with what *file* says."""
        order = json.loads(file.read_text("utf-8"))
        self.arm(order["point"], order["occurrence"])

    def reach(self, point: str) -> None:
        """Note that *point* was reached; if it is the fatal one nothing comes after."""
        for kind in kinds_of(point):
            if (kind, self.stage) not in self._known:
                self._known.add((kind, self.stage))
                note(self._notes, {"reached": kind, "stage": self.stage})
            if kind == self._fatal_kind:
                self._left -= 1
                if not self._left:
                    note(self._notes, {"died": kind})
                    os.kill(os.getpid(), signal.SIGKILL)
                    time.sleep(60)


def note(notes: Path, words: dict[str, Any]) -> None:
    """Append a line of JSON: one write, so that lines of several processes do not mix."""
    line = {"at": time.time(), "pid": os.getpid(), **words}
    written = os.open(notes, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        os.write(written, json.dumps(line).encode() + b"\n")
    finally:
        os.close(written)


class Notes:
    """Reads what workers note, as it comes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        #: The points that workers know of, and the stages in which each was reached.
        self.points: dict[str, list[Stage]] = {}
        #: What a worker died of and when, by its pid.
        self.deaths: dict[int, tuple[str, float]] = {}

    def look(self) -> None:
        """Read what is new."""
        for line in self._new_lines():
            told = json.loads(line)
            if "reached" in told:
                stages = self.points.setdefault(told["reached"], [])
                if told["stage"] not in stages:
                    stages.append(told["stage"])
            else:
                self.deaths[told["pid"]] = (told["died"], told["at"])

    def _new_lines(self) -> Iterator[bytes]:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        whole, _, _ = new.rpartition(b"\n")
        self._read += len(whole) + 1 if whole else 0
        yield from whole.splitlines()
