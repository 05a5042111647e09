"""A private Postgres server for tests, from the binaries of this host (see ``packages`` where it has none).

It has a data directory, a port and a socket of its own, touches no service of the host, and may be crashed,
killed and started again under the same URL. Everything waits for a bounded time and says what went wrong.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.databases import create_database, drop_database
from tests.servers.guardian import Guardian, started
from tests.servers.packages import POSTGRES, ensure
from tests.servers.places import ServerTrouble, free_port, private_folder, remove_folder, tail

#: initdb and postgres refuse to run as root: root runs them as this account.
ACCOUNT = "postgres"
USER = "tidewheel"
DATABASE = "tidewheel"

_START_S_MAX = 60.0
_STOP_S_MAX = 30.0
_PORTS_TRIED_MAX = 5
#: The line of ``postmaster.pid`` that says whether the server takes connections.
_STATUS_LINE = 7
_SHARED_MEMORY_LINE = 6

#: What a server says that may start a moment later: orphans of one that was killed hold its memory for a
#: while, and a port may have been taken since it was found free.
_PASSING = ("shared memory block", "Address already in use")

#: What a server for tests is told, unless the test says otherwise.
SETTINGS: Mapping[str, str | int | bool] = {
    "max_connections": 200,
    "fsync": "off",
    "max_wal_size": "256MB",
    "jit": "off",
    "timezone": "UTC",
    "lc_messages": "C",
    "log_line_prefix": "%m [%p] %q%a ",
    # Files in the data directory go with it; segments of shared memory would outlive a SIGKILL.
    "dynamic_shared_memory_type": "mmap",
}


class PrivatePostgres:
    """A Postgres server of the caller's own; a context manager that starts and removes it.

    *settings* go into ``postgresql.conf``, over ``SETTINGS``. Without ``fsync`` it loses nothing when it is
    killed: what was written is the kernel's. The folder is made in *parent*, else in memory if there is room.
    """

    def __init__(
        self, settings: Mapping[str, str | int | bool] | None = None, *, parent: Path | None = None
    ) -> None:
        self.settings: dict[str, str | int | bool] = {**SETTINGS, **(settings or {})}
        self.port = 0
        self._parent = parent
        self.password = secrets.token_hex(8)
        self._programs = Path()
        self._folder: Path | None = None
        self._guardian: Guardian | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._orphans: dict[int, str] = {}

    @property
    def folder(self) -> Path:
        """The folder with everything this server has."""
        assert self._folder is not None, "the server was never started"
        return self._folder

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.folder / "log"

    @property
    def url(self) -> str:
        """Where the server is, as a superuser, in a database of its own."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """Where *database* is."""
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int | None:
        """The postmaster, while it runs."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def start(self) -> None:
        """Start the server, the first time with a new data directory, and wait until it takes connections."""
        assert self.pid is None, "the server runs already"
        new = self._folder is None
        if new:
            self._prepare()
        deadline = time.monotonic() + _START_S_MAX
        while not self._try_to_start(deadline):
            if time.monotonic() > deadline or not any(hint in tail(self.log) for hint in _PASSING):
                raise ServerTrouble(f"Postgres did not start:\n{tail(self.log)}")
            if new:
                self._configure()
            time.sleep(0.05)
        self._orphans = {}
        if new:
            self.create_database(DATABASE)

    def stop(self) -> None:
        """Stop the server in an orderly way; its data stays."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """Stop the server without a checkpoint: it recovers from its log when it is started again."""
        self._end(signal.SIGQUIT)

    def kill(self) -> None:
        """Kill the postmaster with SIGKILL; its orphans end by themselves, sooner or later."""
        if self._process is None:
            return
        self._orphans |= {pid: started(pid) for pid in _children(self._process.pid)}
        self._process.kill()
        self._process.wait()
        self._process = None

    def close(self) -> None:
        """End the server and remove all it has; no trace of it is left."""
        self._end(signal.SIGQUIT)
        for pid, began in self._orphans.items():
            if began and started(pid) == began:
                _signal(pid, signal.SIGKILL)
        self._orphans = {}
        if self._folder is not None:
            _remove_shared_memory(self.data)
            remove_folder(self._folder)
            self._folder = None
        if self._guardian is not None:
            self._guardian.release()
            self._guardian = None

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database, a copy of *template* where one is named, and return its URL."""
        return create_database(self.url_of("postgres"), name, template)

    def drop_database(self, name: str) -> None:
        """Drop a database, whoever is connected to it."""
        drop_database(self.url_of("postgres"), name)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # The first start.

    def _prepare(self) -> None:
        self._programs = ensure(POSTGRES)
        self._guardian = Guardian()
        self._folder = private_folder("pg", owner=_account(), parent=self._parent)
        self._guardian.remove(self._folder)
        password = self.folder / "password"
        password.write_text(self.password + "\n", "ascii")
        if (account := _account()) is not None:
            shutil.chown(password, account, account)
        self._run(
            "initdb", "--pgdata", str(self.data), "--username", USER, "--pwfile", str(password),
            "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync",
            "--no-instructions",
        )  # fmt: skip
        self._configure()

    def _configure(self) -> None:
        self.port = free_port()
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": str(self.folder),
            **self.settings,
        }
        lines = [f"{name} = {_quoted(value)}" for name, value in settings.items()]
        # What stands last in the main file wins over what initdb wrote there.
        (self.data / "tidewheel.conf").write_text("\n".join(lines) + "\n", "utf-8")
        main = self.data / "postgresql.conf"
        include = "include 'tidewheel.conf'\n"
        if include not in (text := main.read_text("utf-8")):
            main.write_text(text + include, "utf-8")

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=_START_S_MAX,
            env=_environment(),
            user=_account(),
            group=_account(),
            extra_groups=[] if _account() else None,
        )
        if done.returncode != 0:
            raise ServerTrouble(f"{program} failed ({done.returncode}):\n{done.stdout}{done.stderr}")

    # Every start, every end.

    def _try_to_start(self, deadline: float) -> bool:
        """Start the server and tell whether it takes connections; if not, it has ended."""
        assert self._guardian is not None
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self.data)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=_environment(),
                user=_account(),
                group=_account(),
                extra_groups=[] if _account() else None,
            )
        self._process = process
        self._guardian.watch(process.pid, gently=signal.SIGQUIT)
        while process.poll() is None:
            if _status(self.data, process.pid) == "ready":
                return True
            if time.monotonic() > deadline:
                self._end(signal.SIGQUIT)
                break
            time.sleep(0.01)
        self._process = None
        return False

    def _end(self, number: signal.Signals) -> None:
        """End the postmaster by a signal, which it hands on to its children; by SIGKILL if it will not."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process = process
            self.kill()
            raise ServerTrouble(
                f"Postgres was killed: {number.name} did not end it in {_STOP_S_MAX:.0f} s:\n{tail(self.log)}"
            ) from None


def _account() -> str | None:
    """Return the account that the server runs as, or None for that of this process."""
    return ACCOUNT if os.geteuid() == 0 else None


def _environment() -> dict[str, str]:
    """Return an environment without what the user's shell says to Postgres."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}


def _quoted(value: str | int | bool) -> str:
    text = ("on" if value else "off") if isinstance(value, bool) else str(value)
    return "'" + text.replace("'", "''") + "'"


def _pid_file(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text("utf-8").splitlines()
    except OSError:
        return []


def _status(data: Path, pid: int) -> str:
    """Return what the server with *pid* says of itself in its data directory."""
    lines = _pid_file(data)
    return lines[_STATUS_LINE].strip() if len(lines) > _STATUS_LINE and lines[0] == str(pid) else ""


def _remove_shared_memory(data: Path) -> None:
    """Remove the segment by which Postgres keeps a second server off; only a SIGKILL leaves one behind."""
    lines = _pid_file(data)
    if len(lines) > _SHARED_MEMORY_LINE and len(numbers := lines[_SHARED_MEMORY_LINE].split()) == 2:
        ctypes.CDLL(None).shmctl(int(numbers[1]), 0, None)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
    except OSError:
        return []


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
