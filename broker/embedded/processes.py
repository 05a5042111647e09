"""Which process is which, and whether it still lives.

A pid alone is used again; with the time it was started it is not. Where the kernel tells neither
(no /proc), or the other process is in another container or was before a reboot, nothing is known,
and only its heartbeat counts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process, for others to look up: *realm* is where its pid means something."""

    realm: str
    pid: int
    started: str


def this_process() -> ProcessIdentity:
    """Return who we are. Read again each time, since a fork is somebody else."""
    pid = os.getpid()
    state = _state_and_start(pid)
    return ProcessIdentity(realm=_realm() if state else "", pid=pid, started=state[1] if state else "")


def is_known_dead(process: ProcessIdentity) -> bool:
    """Tell whether *process* certainly runs no more; false also means that nobody can know."""
    if not process.realm or process.realm != _realm():
        return False
    state = _state_and_start(process.pid)
    # A killed process whose parent has not asked for it yet is a zombie (Z): it runs no more.
    return state is None or state[0] in "ZX" or state[1] != process.started


def _realm() -> str:
    """Name this boot of this machine and this namespace of pids; empty where there is no /proc."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


def _state_and_start(pid: int) -> tuple[str, str] | None:
    """Return the state letter and the start time of *pid*, or None where there is no such process."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The second field is the program's name in parentheses, which may hold anything, also ") ".
    fields = stat.rpartition(")")[2].split()
    return fields[0], fields[19]
