"""Real processes of the command, for tests: started, read line by line, signalled, and never left behind."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tidewheel.workers.lifeline import process_began

COMMAND = [sys.executable, "-P", "-m", "tidewheel.cli.main"]
#: A bound for what should take a second or two: the machine may be busy.
PATIENCE_S = 40.0


class Service:
    """A process that goes on until it is told to stop; what it writes is kept in ``lines``."""

    def __init__(self, *arguments: str, folder: Path, stderr: int = subprocess.STDOUT) -> None:
        self._process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=folder,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            text=True,
        )
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, text: str) -> str:
        """Return the first line that has *text* in it, once it is written."""
        with self._changed:
            found = self._changed.wait_for(lambda: self._line(text) or self._ended, PATIENCE_S)
        line = self._line(text)
        assert line is not None, f"no {text!r} ({found=}) in:\n{self.text}"
        return line

    @property
    def text(self) -> str:
        """All that was written so far."""
        return "\n".join(self.lines)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self._process.send_signal(number)

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def child(self, name: str) -> int:
        """Return the process of a supervisor's child, once the supervisor has told it."""
        found = re.search(rf"  process .*\b{name} (\d+)", self.wait_for(f"{name} "))
        assert found is not None, self.text
        return int(found[1])

    def exit_code(self) -> int:
        """Wait for its end, and return how it ended."""
        code = self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def end(self) -> None:
        """See to it that nothing is left."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _line(self, text: str) -> str | None:
        return next((line for line in list(self.lines) if text in line), None)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class Terminal:
    """A terminal that a process may write to; somebody reads it, as at a real one."""

    def __enter__(self) -> Self:
        self._mine, self.end = os.openpty()
        self._pieces: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.end)
        self._reader.join(PATIENCE_S)
        os.close(self._mine)

    @property
    def text(self) -> str:
        """All that was written."""
        return b"".join(self._pieces).decode()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # how the end of a terminal shows
            while piece := os.read(self._mine, 10_000):
                self._pieces.append(piece)


def children_of(pid: int) -> list[int]:
    """Return the processes that *pid* started and that have not ended."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8")
    return [child for child in map(int, listed.split()) if process_began(child)]


def is_alive(pid: int) -> bool:
    """Tell whether there is such a process, and it has not ended."""
    return bool(process_began(pid))


def probe(service: Service, page: str) -> tuple[int, Any]:
    """Ask a service that was started with ``--health`` for a page; return status and body."""
    found = re.search(r"health at http://([^:/]+):(\d+)/", service.wait_for("health at"))
    assert found is not None
    connection = http.client.HTTPConnection(found[1], int(found[2]), timeout=PATIENCE_S)
    try:
        connection.request("GET", page)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def until(is_so: Callable[[], bool]) -> None:
    """Return when it is so; a file that another process writes has no other way to tell."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "this took too long"
        time.sleep(0.02)
