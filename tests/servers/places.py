"""Where a private server lives: a folder and a port that nobody else has.

A port is taken below the range from which the kernel gives ports to clients. In that range a client that
tries again and again to reach a server that is down can be given the server's own port: it then talks to
itself, and the server cannot come back.
"""

from __future__ import annotations

import os
import pwd
import random
import shutil
import socket
import tempfile
from pathlib import Path

#: Where the search for a port begins, and how many are tried.
_PORT_LOWEST = 15_000
_PORT_TRIES_MAX = 200
#: The kernel's range where it does not say.
_CLIENT_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_CLIENT_PORT_LOWEST = 32_768
#: A file system in memory, and what has to be free there for the folder of a server.
_MEMORY = "/dev/shm"  # noqa: S108 - a folder of its own is made there
_MEMORY_FREE_MIN = 2 << 30
#: Where folders are made if the usual place has too long a name: a Unix socket's path has at most 107 bytes.
_TEMP = "/tmp"  # noqa: S108 - a folder of its own is made there
_TEMP_LENGTH_MAX = 60


class ServerTrouble(Exception):
    """A server for the tests did not do what it was told; the message has the end of its log."""


def free_port() -> int:
    """Return a TCP port of this host on which nobody listens."""
    try:
        highest = int(_CLIENT_PORTS.read_text("ascii").split()[0]) - 1
    except (OSError, ValueError):
        highest = _CLIENT_PORT_LOWEST - 1
    for _ in range(_PORT_TRIES_MAX):
        port = random.randint(min(_PORT_LOWEST, highest - 1_000), highest)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerTrouble(f"none of {_PORT_TRIES_MAX} ports tried below {highest} is free on 127.0.0.1")


def private_folder(prefix: str, *, owner: str | None = None, parent: Path | None = None) -> Path:
    """Make a folder that only *owner* (an account of this host; else whoever runs this) may enter.

    Without a *parent* it is in memory, where there is room for it: a server that is killed loses nothing that
    it wrote, and a database is created ten times as fast as on a busy disk.
    """
    made = Path(tempfile.mkdtemp(prefix=f"tw-{prefix}-", dir=parent or _usual_parent()))
    if owner is not None:
        account = pwd.getpwnam(owner)
        os.chown(made, account.pw_uid, account.pw_gid)
    return made


def _usual_parent() -> str:
    if os.access(_MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(_MEMORY).free >= _MEMORY_FREE_MIN:
        return _MEMORY
    usual = tempfile.gettempdir()
    return usual if len(usual) < _TEMP_LENGTH_MAX else _TEMP


def remove_folder(folder: Path) -> None:
    """Remove *folder*, whatever else is being removed in it."""
    shutil.rmtree(folder, ignore_errors=True)


def tail(log: Path, *, lines_max: int = 30) -> str:
    """Return the last lines of *log*, for a message."""
    try:
        lines = log.read_text("utf-8", errors="replace").splitlines()
    except OSError as problem:
        return f"(no log: {problem})"
    return "\n".join(lines[-lines_max:])
