"""What the bodies of tasks did, written by themselves: one line for each time one was executed.

A line is one write to a file opened for appending, so that lines of several processes do not mix and a line
that was written is there whatever happens to its process.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from tidewheel.sdk.current_task import current_task


class Line(NamedTuple):
    """One execution of one body."""

    name: str
    run_id: str
    key: str
    attempt: int
    pid: int


class Ledger:
    """The file of the bodies' lines, in a folder that the test knows."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger.jsonl"

    def write(self, name: str) -> None:
        """Note that the body *name* is being executed, as the task that is the current one."""
        task = current_task()
        line = Line(name, task.run_id, task.idempotency_key, task.attempt, os.getpid())
        written = os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            os.write(written, json.dumps(line).encode() + b"\n")
        finally:
            os.close(written)

    def lines(self) -> list[Line]:
        """Return what was written so far."""
        if not self.path.exists():
            return []
        return [Line(*json.loads(line)) for line in self.path.read_text("utf-8").splitlines()]

    def of(self, name: str) -> list[Line]:
        """Return the executions of one body."""
        return [line for line in self.lines() if line.name == name]


def repeated_attempts(lines: list[Line]) -> list[Any]:
    """Return the attempts that were executed more than once: there must be none, ever."""
    counted = Counter((line.key, line.attempt) for line in lines)
    return [attempt for attempt, count in counted.items() if count > 1]
