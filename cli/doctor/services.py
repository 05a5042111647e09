"""What runs depend on: the store, the broker, the workers, and the messages that nobody could take."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from tidewheel.broker.topology import dead_letter_queue, poison_queue, work_queue
from tidewheel.cli.connecting import Link, shown
from tidewheel.cli.doctor.findings import Report
from tidewheel.cli.timeline.text import counted
from tidewheel.store.migrations import schema_status
from tidewheel.store.records import WorkerRecord
from tidewheel.store.urls import SqliteUrl, parse_url

#: Clocks that differ by more than this make deadlines and times in logs hard to read together.
SKEW_MAX_S: Final = 2.0


async def look_at_store(link: Link, report: Report) -> None:
    """It can be read, has the schema of this release, and its clock is like ours."""
    url = link.settings.store
    schema = ""
    if isinstance(parse_url(url), SqliteUrl):
        schema = f", schema {schema_status(url).current}"
    report.say("store", f"{shown(url)}{schema}, namespace {link.settings.namespace}")
    before = time.time()
    theirs = (await link.store.now()).timestamp()
    skew_s = max(before - theirs, theirs - time.time(), 0.0)
    report.say("clock", f"differs from this host's by {skew_s:.1f} s")
    if skew_s > SKEW_MAX_S:
        message = f"the store's clock and this host's differ by {skew_s:.1f} s"
        report.find("clock", message, "synchronise both with a time server (chrony, ntpd)")


async def look_at_broker(link: Link, report: Report) -> None:
    """It answers. Raises ``BrokerUnavailable`` where it does not."""
    queue = work_queue(link.settings.namespace, "default")
    waiting = await link.broker.depth(queue)
    lacks = f"; it lacks {', '.join(sorted(link.broker.lacks))}" if link.broker.lacks else ""
    report.say("broker", f"{shown(link.settings.broker)}, {counted(waiting, 'message')} in {queue}{lacks}")


def look_at_workers(
    alive: Sequence[WorkerRecord], registered: Sequence[WorkerRecord], open_runs: int, report: Report
) -> None:
    """There is one, if there is anything to do."""
    queues = sorted({queue for worker in alive for queue in worker.queues})
    workflows = sorted({name for worker in alive for name, *_ in worker.workflows})
    said = f"{counted(len(alive), 'worker')} alive"
    if alive:
        said += f"; queues: {', '.join(queues)}; workflows: {', '.join(workflows) or 'none'}"
    if len(registered) > len(alive):
        said += f"; {len(registered) - len(alive):,} gone"
    report.say("workers", said)
    if not alive and open_runs:
        message = f"no worker is running, and {counted(open_runs, 'open run')} may need one"
        report.find("workers", message, "start one: `tidewheel up APP` or `tidewheel worker APP`")


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
    report.say("dead letters", f"{total:,} waiting, {poison:,} unreadable")
