"""What the bodies of tasks did, written by themselves: one line for each time one was executed.

A line is one write to a file that is opened for appending: lines of several processes do not mix, and one
that was written is there whatever happens to its process or to the database. Nothing of the product is used.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    """One execution of one body: who, as which attempt of which step, where and when."""

    name: str
    run_id: str
    key: str
    attempt: int
    pid: int
    at: float


class Ledger:
    """The file of the bodies' lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, run_id: str, key: str, attempt: int) -> None:
        """Note that the body *name* is being executed, now and in this process."""
        line = Line(name, run_id, key, attempt, os.getpid(), time.time())
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
