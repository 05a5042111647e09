"""The systems that are compared: how each is had, and how a program that drives it is started and asked.

Every measurement gets a new database and a new virtual host on the same two servers, and new processes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psycopg

from benchmarks import machine
from benchmarks.environments import FOLDER, ROOT, NotToBeHad, npm_package, python_of
from tests.servers.postgres import PrivatePostgres
from tests.servers.rabbitmq import PrivateRabbit

_names = itertools.count()
_ABSURD = "https://github.com/earendil-works/absurd"
_RESTATE_SERVER = "@restatedev/restate-server-linux-x64/bin/restate-server"
_END_S_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers that all systems share, durable as they come."""

    postgres: PrivatePostgres
    rabbit: PrivateRabbit


@dataclass(frozen=True, slots=True)
class System:
    """A system in its best known setting. *get* returns its interpreter and what its program is told."""

    name: str
    setting: str
    program: str
    get: Callable[[], tuple[str, dict[str, str]]]
    #: The program has tables made for it, once, which each measurement gets a copy of.
    prepare: Callable[[str], None] | None = None
    #: Variables of the environment that differ from how it comes.
    settings: Mapping[str, str] = field(default_factory=dict)


class Driver:
    """A running program that carries out orders."""

    def __init__(self, process: subprocess.Popen[str], servers: Servers, database: str, log: Path) -> None:
        self.process = process
        self._servers = servers
        self.database = database
        self._log = log
        self.orders: list[str] = self._read()["orders"]

    def ask(self, order: str, **arguments: Any) -> dict[str, Any]:
        """Have an order carried out, and return its figures."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"order": order, **arguments}) + "\n")
        self.process.stdin.flush()
        figures = self._read()
        if "error" in figures:
            raise RuntimeError(figures["error"])
        return figures

    def observed(self) -> Observation:
        """Return a block in which everything that takes part is watched."""
        roots = {"python": self.process.pid}
        for name, server in (("postgres", self._servers.postgres), ("rabbitmq", self._servers.rabbit)):
            if server.pid is not None:
                roots[name] = server.pid
        return Observation(roots, self.database)

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            said = self._log.read_text("utf-8", "replace").strip().splitlines()[-5:]
            message = "the program ended: " + " | ".join(said)
            raise RuntimeError(message)
        answer: dict[str, Any] = json.loads(line)
        return answer


class Observation(machine.Usage):
    """The CPU used meanwhile, and the transactions that wrote something."""

    def __init__(self, roots: Mapping[str, int], database: str) -> None:
        super().__init__(roots)
        self._database = database
        self.commits = 0

    def __enter__(self) -> Self:
        self._connection = psycopg.connect(self._database, autocommit=True)
        self.commits = -self._transactions()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:  # noqa: PYI036 - as the base has them
        super().__exit__(*error)
        with self._connection:
            self.commits += self._transactions()

    def _transactions(self) -> int:
        """Only transactions that write get a number, so it counts them."""
        row = self._connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text").fetchone()
        assert row is not None
        return int(row[0])


@contextlib.contextmanager
def driving(system: System, servers: Servers, **told: str) -> Iterator[Driver]:
    """Run the program of *system* on a new database and a new virtual host while the block lasts."""
    python, needs = system.get()
    name = f"bench{next(_names)}"
    template = _template(system, servers) if system.prepare else None
    database = servers.postgres.create_database(name, template)
    servers.rabbit.add_vhost(name)
    folder = Path(
        tempfile.mkdtemp(prefix=f"tidewheel-bench-{system.name.replace(' ', '-')}-", dir=_scratch())
    )
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        "BENCH_DATABASE": database,
        "BENCH_STORE": database,
        "BENCH_BROKER": servers.rabbit.url_of(name),
        "BENCH_FOLDER": str(folder),
        **system.settings,
        **{f"BENCH_{key}": value.format(folder=folder) for key, value in {**needs, **told}.items()},
    }
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603 - one of our programs
            [python, "-m", f"benchmarks.programs.{system.program}"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=out,
            text=True,
            start_new_session=True,
        )
    try:
        yield Driver(process, servers, database, log)
    finally:
        _end(process)
        servers.postgres.drop_database(name)
        servers.rabbit.ctl("delete_vhost", name)
        shutil.rmtree(folder, ignore_errors=True)


def _scratch() -> Path:
    """Return a folder on the disk of the checkout: a temporary folder may be in memory."""
    folder = FOLDER / "scratch"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _end(process: subprocess.Popen[str]) -> None:
    """End the program and whatever it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_END_S_MAX)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _template(system: System, servers: Servers) -> str:
    name = f"template_{system.program}"
    with psycopg.connect(servers.postgres.url) as connection:
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone()
    if known is None:
        assert system.prepare is not None
        system.prepare(servers.postgres.create_database(name))
    return name


# How each is had


def _ours(processes: int, door: str = "bus") -> Callable[[], tuple[str, dict[str, str]]]:
    """*door* is how runs are started: "bus", by messages, or "store", by a client that commits them."""
    return lambda: (sys.executable, {"PROCESSES": str(processes), "DOOR": door})


def _embedded() -> tuple[str, dict[str, str]]:
    store = "sqlite:///{folder}/tidewheel.db"
    return sys.executable, {"PROCESSES": "1", "STORE": store, "BROKER": "embedded://", "DOOR": "bus"}


def _migrate(database: str) -> None:
    command = [sys.executable, "-m", "tidewheel.cli.main", "db", "migrate", "--store", database]
    path = {"PYTHONPATH": str(ROOT / "src")}
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **path})  # noqa: S603 - ours


def _restate() -> tuple[str, dict[str, str]]:
    return python_of("restate"), {
        "SERVER": str(npm_package("restate", "@restatedev/restate-server@1.7.12", _RESTATE_SERVER))
    }


def _absurd() -> tuple[str, dict[str, str]]:
    sql = Path(os.environ.get("ABSURD_SQL", FOLDER / "absurd" / "source" / "sql" / "absurd.sql"))
    if not sql.exists():
        (FOLDER / "absurd").mkdir(parents=True, exist_ok=True)
        clone = ["git", "clone", "-q", "--depth", "1", _ABSURD, str(FOLDER / "absurd" / "source")]
        done = subprocess.run(clone, capture_output=True, text=True, check=False)  # noqa: S603 - what this file says
        if done.returncode:
            message = f"its SQL is not in its package: set ABSURD_SQL to absurd.sql of {_ABSURD}"
            raise NotToBeHad(message)
    return python_of("absurd"), {"ABSURD_SQL": str(sql)}


def _peer(name: str) -> Callable[[], tuple[str, dict[str, str]]]:
    return lambda: (python_of(name), {})


TIDEWHEEL = System("tidewheel", "1 worker process, start messages", "tidewheel_program", _ours(1), _migrate)
TWO_WORKERS = System(
    "tidewheel x2", "2 worker processes, start messages", "tidewheel_program", _ours(2), _migrate
)
BY_CLIENT = System(
    "tidewheel, client.start", "1 worker process", "tidewheel_program", _ours(1, "store"), _migrate
)
EMBEDDED = System("tidewheel on SQLite", "1 worker process, as it comes", "tidewheel_program", _embedded)
LIMITS = System("limits", "what the servers and drivers can do", "limits_program", _ours(0))

PEERS = (
    System("restate", "granian x1, uvloop, 100 calls open", "restate_program", _restate),
    System("absurd", "async SDK, 2 processes x 8, polling every 20 ms", "absurd_program", _absurd),
    System(
        "dbos", "W1: queue, 2 pinned processes x 8 threads; else direct calls", "dbos_program", _peer("dbos")
    ),
    System("celery", "chain, prefork 2, confirms, acks_late", "celery_program", _peer("celery")),
    System("dramatiq", "chain + INSERT, 2 processes x 4 threads", "dramatiq_program", _peer("dramatiq")),
)
SWITCHED = tuple(
    System(
        f"tidewheel, {name}",
        " ".join(f"{key}={value}" for key, value in settings.items()),
        "tidewheel_program",
        _ours(1),
        _migrate,
        settings,
    )
    for name, settings in {
        "no cache": {"TIDEWHEEL_CACHE": "0"},
        "none remembered": {"TIDEWHEEL_POSTGRES_REMEMBERED": "0"},
        "no batches": {"TIDEWHEEL_BATCH": "1"},
        "no uvloop": {"TIDEWHEEL_UVLOOP": "0"},
        "no sweeps": {"TIDEWHEEL_SWEEP": "1"},
        "starts stored first": {"TIDEWHEEL_OPENS": "0"},
        "few slots": {"TIDEWHEEL_SLOTS": "10"},
        "small prefetch": {"TIDEWHEEL_PREFETCH": "10"},
    }.items()
)
SYSTEMS = {
    system.name: system for system in (TIDEWHEEL, TWO_WORKERS, BY_CLIENT, EMBEDDED, LIMITS, *SWITCHED, *PEERS)
}
