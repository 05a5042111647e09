"""What a worker, a keeper and the process they run in can be told, with their defaults."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.ids import check_name
from tidewheel.sdk.settings import Key, Settings, Unit

#: The queue of whatever names none.
DEFAULT_QUEUE = "default"
PORT_MAX = 65_535


def _check_queues(queues: Sequence[str]) -> None:
    for queue in queues:
        check_name(queue, "queue")
    if not queues or len(set(queues)) != len(queues):
        message = "name at least one queue, and each once"
        raise InvalidRequest(message)


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class WorkerConfig(Settings, frozen=True, kw_only=True):
    """How a worker behaves."""

    queues: Annotated[
        tuple[str, ...],
        Key("TIDEWHEEL_QUEUES", "The queues a worker serves, with commas.", check=_check_queues),
    ] = (DEFAULT_QUEUE,)
    prefetch: Annotated[
        int,
        Key(
            "TIDEWHEEL_PREFETCH",
            "Deliveries in hand at a time, per queue; never more than the worker can execute.",
            least=1,
            most=10_000,
        ),
    ] = 128
    slots: Annotated[
        int, Key("TIDEWHEEL_SLOTS", "Steps a worker executes at a time.", least=1, most=100_000)
    ] = 128
    threads: Annotated[
        int, Key("TIDEWHEEL_THREADS", "Plain functions it executes at a time.", least=1, most=1_000)
    ] = 16
    task_processes: Annotated[
        int,
        Key(
            "TIDEWHEEL_TASK_PROCESSES",
            "Tasks with `process=True` that a worker executes at a time, each in a process; 0: one per core.",
            least=0,
            most=1_000,
        ),
    ] = 0
    cache: Annotated[
        int, Key("TIDEWHEEL_CACHE", "Runs kept in memory between activations.", least=0, most=1_000_000)
    ] = 1_000
    sweep: Annotated[
        int,
        Key(
            "TIDEWHEEL_SWEEP",
            "Runs that go on together before others are heard; 1: each by itself.",
            least=1,
            most=10_000,
        ),
    ] = 256
    opens: Annotated[
        bool,
        Key(
            "TIDEWHEEL_OPENS",
            "A run that is started by a message is begun by whoever took that; else it is stored first.",
        ),
    ] = True
    lease_s: Annotated[
        float,
        Key(
            "TIDEWHEEL_LEASE",
            "How long a worker is believed alive without a word from it.",
            Unit.SECONDS,
            least=0.1,
        ),
    ] = 10.0
    hold_s: Annotated[
        float,
        Key(
            "TIDEWHEEL_HOLD",
            "A delivery is acknowledged after this long, even if its work goes on.",
            Unit.SECONDS,
            least=0.1,
            most=1_200,
        ),
    ] = 60.0
    started_after_s: Annotated[
        float,
        Key(
            "TIDEWHEEL_STARTED_AFTER",
            "An inline step that takes longer than this is journaled as started before it ends.",
            Unit.SECONDS,
            least=0.0,
        ),
    ] = 1.0
    pause_s: Annotated[
        float,
        Key("TIDEWHEEL_PAUSE", "The first pause after something went wrong.", Unit.SECONDS, least=0.001),
    ] = 0.2
    grace_s: Annotated[
        float,
        Key(
            "TIDEWHEEL_GRACE",
            "How long work in hand may go on after a stop was asked for.",
            Unit.SECONDS,
            least=0.0,
        ),
    ] = 30.0

    @property
    def task_processes_max(self) -> int:
        """How many processes execute tasks at a time."""
        return self.task_processes or cores()


class KeeperConfig(Settings, frozen=True, kw_only=True):
    """How a keeper behaves."""

    poll_s: Annotated[
        float,
        Key("TIDEWHEEL_KEEPER_POLL", "The longest it sleeps between two looks.", Unit.SECONDS, least=0.01),
    ] = 1.0
    batch: Annotated[
        int, Key("TIDEWHEEL_KEEPER_BATCH", "Things of each kind it takes at a time.", least=1, most=10_000)
    ] = 500
    fires_after_s: Annotated[
        float,
        Key(
            "TIDEWHEEL_KEEPER_FIRES_AFTER",
            "Workers are told of a timer that is due; if it was not fired so much later, the keeper does it.",
            Unit.SECONDS,
            least=0.0,
        ),
    ] = 10.0
    strikes: Annotated[
        int,
        Key(
            "TIDEWHEEL_STRIKES",
            "A run that workers die with is tried alone; after this many dead messages it is quarantined.",
            least=1,
            most=100,
        ),
    ] = 3
    retention_days: Annotated[
        float,
        Key("TIDEWHEEL_RETENTION_DAYS", "Ended runs are deleted after this many days; 0: never.", least=0.0),
    ] = 90.0


class Address(NamedTuple):
    """Where a process listens."""

    host: str
    port: int


def parse_address(text: str) -> Address:
    """Return what ``HOST:PORT`` names; port 0 is any that is free."""
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_number = port.isascii() and port.isdigit() and len(port) <= len(str(PORT_MAX))
    if not (colon and bare and is_number) or int(port) > PORT_MAX or (":" in bare and bare == host):
        message = f"{text!r} is no address; write HOST:PORT, such as 0.0.0.0:8080 or [::]:8080"
        raise InvalidRequest(message)
    return Address(bare, int(port))


class ProcessConfig(Settings, frozen=True, kw_only=True):
    """How the processes of `worker`, `up` and `keeper` start, and where they tell how they are."""

    processes: Annotated[
        int, Key("TIDEWHEEL_PROCESSES", "Worker processes that one command runs.", least=1, most=1_000)
    ] = 1
    connect_timeout_s: Annotated[
        float,
        Key(
            "TIDEWHEEL_CONNECT_TIMEOUT",
            "How long a process that starts waits for a store or broker it cannot reach; 0: not at all.",
            Unit.SECONDS,
            least=0.0,
        ),
    ] = 60.0
    health: Annotated[
        str | None,
        Key(
            "TIDEWHEEL_HEALTH",
            "`HOST:PORT` where it answers `/healthz` and `/readyz` over HTTP.",
            check=parse_address,
        ),
    ] = None

    @property
    def health_address(self) -> Address | None:
        """Where it answers questions about its health, if it does."""
        return None if self.health is None else parse_address(self.health)


class EventLoopConfig(Settings, frozen=True, kw_only=True):
    """What moves the processes of `dev`, `worker`, `up` and `keeper`; a client uses its caller's loop."""

    uvloop: Annotated[
        bool,
        Key("TIDEWHEEL_UVLOOP", "Use uvloop, where it is installed; 0: asyncio's own event loop."),
    ] = True
    gc_threshold: Annotated[
        int,
        Key(
            "TIDEWHEEL_GC_THRESHOLD",
            "Objects a process makes before it looks for garbage that refers to itself; 0: as Python does.",
            least=0,
            most=10_000_000,
        ),
    ] = 20_000
