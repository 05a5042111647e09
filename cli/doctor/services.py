"""What runs depend on: the store, the broker, the workers, and the messages that nobody could take."""

from __future__ import annotations

import asyncio
import datetime as dt
import shutil
import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tidewheel.broker.message import REASON
from tidewheel.broker.topology import COMMANDS, dead_letter_queue, poison_queue, work_queue
from tidewheel.cli.connecting import Link, shown
from tidewheel.cli.doctor.findings import Report
from tidewheel.cli.timeline.text import counted, duration
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.store.migrations import schema_status
from tidewheel.store.outbox import COUNTED_MAX
from tidewheel.store.records import WorkerRecord
from tidewheel.store.urls import MemoryUrl, SqliteUrl, parse_url
from tidewheel.workers.lifeline import process_began

#: Clocks that differ by more than this make deadlines and times in logs hard to read together.
SKEW_MAX_S: Final = 2.0
#: A store on a disk with less room than this stops soon.
FREE_MIN_BYTES: Final = 64 * 1024 * 1024
_MIB: Final = 1024 * 1024


async def look_at_store(link: Link, report: Report) -> None:
    """It can be read, has the schema of this release, and its clock is like ours."""
    url = link.settings.store
    schema = ""
    parsed = parse_url(url)
    if not isinstance(parsed, MemoryUrl):
        schema = f", schema {(await asyncio.to_thread(schema_status, url)).current}"
    if isinstance(parsed, SqliteUrl):
        _look_at_room(parsed.path, report)
    report.say("store", f"{shown(url)}{schema}, namespace {link.settings.namespace}")
    before = time.time()
    theirs = (await link.store.now()).timestamp()
    skew_s = max(before - theirs, theirs - time.time(), 0.0)
    report.say("clock", f"differs from this host's by {skew_s:.1f} s")
    if skew_s > SKEW_MAX_S:
        message = f"the store's clock and this host's differ by {skew_s:.1f} s"
        report.find("clock", message, "synchronise both with a time server (chrony, ntpd)")


def _look_at_room(path: Path, report: Report) -> None:
    free_bytes = shutil.disk_usage(path.parent).free
    if free_bytes < FREE_MIN_BYTES:
        message = f"the disk of {path} has only {free_bytes / _MIB:.1f} MiB left"
        report.find("store", message, "make room: when it is full, no run can be started or go on")


async def look_at_writing(link: Link, report: Report) -> bool:
    """It can be written: an append of nothing takes the lock that every append takes, and changes nothing."""
    try:
        await link.store.append([])
    except (StoreUnavailable, CommitUnknown) as problem:
        report.find("store", str(problem), "until it can be written, no run can be started, go on or end")
        return False
    return True


async def look_at_broker(link: Link, report: Report) -> None:
    """It answers. Raises ``BrokerUnavailable`` where it does not."""
    queue = work_queue(link.settings.namespace, "default")
    waiting = await link.broker.depth(queue)
    lacks = f"; it lacks {', '.join(sorted(link.broker.lacks))}" if link.broker.lacks else ""
    report.say("broker", f"{shown(link.settings.broker)}, {counted(waiting, 'message')} in {queue}{lacks}")


def look_at_workers(
    alive: Sequence[WorkerRecord],
    registered: Sequence[WorkerRecord],
    open_runs: int,
    now: dt.datetime,
    report: Report,
) -> None:
    """There is one, if there is anything to do, and it is not blocked."""
    silent = [worker for worker in registered if worker.alive_until <= now and _lives(worker)]
    for worker in silent:
        since = duration((now - worker.alive_until).total_seconds())
        message = (
            f"worker {worker.pid} lives but has said nothing since its lease ran out {since} ago: "
            "blocked by user code?"
        )
        advice = "see its log; what computes or blocks belongs into a plain `def` task, which has a thread"
        report.find("workers", message, advice)
    queues = sorted({queue for worker in alive for queue in worker.queues})
    workflows = sorted({name for worker in alive for name, *_ in worker.workflows})
    said = f"{counted(len(alive), 'worker')} alive"
    if alive:
        said += f"; queues: {', '.join(queues)}; workflows: {', '.join(workflows) or 'none'}"
    gone = len(registered) - len(alive) - len(silent)
    if silent:
        said += f"; {len(silent):,} silent"
    if gone:
        said += f"; {gone:,} gone"
    report.say("workers", said)
    if not alive and not silent and open_runs:
        message = f"no worker is running, and {counted(open_runs, 'open run')} may need one"
        report.find("workers", message, "start one: `tidewheel up APP` or `tidewheel worker APP`")


def _lives(worker: WorkerRecord) -> bool:
    """Tell whether *worker* is known to be a process of this host that has not ended."""
    here = worker.host == socket.gethostname() and bool(worker.began)
    return here and process_began(worker.pid) == worker.began


async def look_at_dead_letters(link: Link, queues: Iterable[str], report: Report) -> None:
    """Keepers take dead letters up at once; what nobody can read is kept."""
    namespace = link.settings.namespace
    total = 0
    for queue in sorted(queues):
        name = dead_letter_queue(work_queue(namespace, queue))
        depth = await link.broker.depth(name)
        total += depth
        if depth:
            message = f"{counted(depth, 'dead letter')} in {name}, which a keeper should have taken up"
            report.find("dead letters", message, "start one: `tidewheel keeper`, or `tidewheel up APP`")
    poison = await link.broker.depth(poison_queue(namespace))
    if poison:
        message = f"{counted(poison, 'message')} that nobody can read in {poison_queue(namespace)}"
        report.find(
            "dead letters", message, "find out who sent them, then empty the queue; no run is lost by it"
        )
    commands = await link.broker.depth(dead_letter_queue(COMMANDS))
    if commands:
        message = (
            f"{counted(commands, 'command')} that could not be followed in {dead_letter_queue(COMMANDS)}"
        )
        report.find(
            "dead letters", message, f"the header {REASON} of each says why; send it anew as it should be"
        )
    report.say("dead letters", f"{total:,} waiting, {poison:,} unreadable")


async def look_at_events(link: Link, report: Report) -> None:
    """Relays publish what happened; what they could not publish waits for a person."""
    backlog = await link.store.outbox.backlog()
    most = "at least " if backlog.rows == COUNTED_MAX else ""
    said = f"{most}{counted(backlog.rows, 'row')} to be published"
    if backlog.oldest_at is not None:
        said += f", the oldest {duration((backlog.now - backlog.oldest_at).total_seconds())} old"
    report.say("events", said)
    if backlog.dead:
        message = f"{counted(backlog.dead, 'dead letter')} of events that could not be published"
        report.find("events", message, "`tidewheel dlq list` says why; mend it, then `tidewheel dlq redrive`")
