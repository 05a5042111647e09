"""Ends a server, and removes its folder, when the process that started it is gone.

A process that is killed with SIGKILL cannot clean up, and a server is in a session of its own, so nothing
else would end it. The guardian is a small process that waits for the end of a pipe. It is run as a file by
itself, so it imports nothing of ours.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

#: How often the guardian looks whether its parent is still there; the pipe usually tells it sooner.
_LOOK_EVERY_S = 1.0
#: How long a process has to end after the gentler signal.
_GRACE_S = 5.0
_RELEASED = "released"


class Guardian:
    """A promise that processes and folders do not outlive this process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    def watch(self, pid: int, *, gently: signal.Signals = signal.SIGTERM) -> None:
        """End process *pid* and its group with this one: by *gently*, then by SIGKILL."""
        self._say(f"process {pid} {int(gently)} {started(pid)}")

    def remove(self, folder: Path) -> None:
        """Remove *folder* with this process."""
        self._say(f"folder {folder}")

    def release(self) -> None:
        """Do nothing of it: everything was ended and removed."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._say(_RELEASED)
            self._process.stdin.close()
        self._process.wait()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            # Somebody ended the guardian: the tests go on without it.
            return


def started(pid: int) -> str:
    """Return when *pid* began, which tells it from a later process of that number; empty if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return ""
    state, *rest = stat.rpartition(")")[2].split()
    return "" if state in "ZX" else rest[18]


def _end(pid: int, gently: int, began: str) -> None:
    """End the process and what is in its group."""
    if not began or started(pid) != began:
        return
    _signal(pid, gently)
    deadline = time.monotonic() + _GRACE_S
    while started(pid) == began and time.monotonic() < deadline:
        time.sleep(0.02)
    if started(pid) == began:
        _signal(pid, signal.SIGKILL)
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        return


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _lines(parent: int) -> list[str]:
    """Return what was asked for, once the parent is gone, has closed the pipe or needs no guardian."""
    said = b""
    while True:
        # What the parent said last is still in the pipe when it is gone, also before this process began.
        gone = os.getppid() != parent
        ready, _, _ = select.select([0], [], [], 0.0 if gone else _LOOK_EVERY_S)
        piece = os.read(0, 65_536) if ready else b""
        if (ready or gone) and not piece:
            return said.decode().splitlines()
        said += piece
        # The pipe may stay open: a child that the parent forked has it too.
        if said.endswith(f"{_RELEASED}\n".encode()):
            return [_RELEASED]


def main(parent: int) -> None:
    """Wait for *parent* to end, then do what it could not do any more."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    lines = _lines(parent)
    if _RELEASED in lines:
        return
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "process":
            pid, gently, *began = rest.split()
            _end(int(pid), int(gently), "".join(began))
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "folder":
            shutil.rmtree(rest, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
