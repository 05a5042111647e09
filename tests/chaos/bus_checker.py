"""What is wrong once the bus is quiet: with what was heard, with the snapshots, with what is left over.

Rule: what should have been heard is worked out without the product, from the rows of the journal and from
the contract: which events are public, what their ids are made of, and how they are chained. That snapshots
equal a rebuild is asked of the product, which is what users would ask; and beside it of their rows.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos import letters
from tests.chaos.arrivals import Heard
from tests.chaos.bus_fleet import BusFleet
from tests.chaos.checker import breaches, published
from tests.chaos.findings import Finding
from tidewheel.broker.topology import COMMANDS, dead_letter_queue, poison_queue, projector_dead_letters
from tidewheel.projector.rebuilding import Rebuilt, rebuild
from tidewheel.store.opening import open_store

#: Where messages end that nobody could read or follow.
DEAD_LETTERS = (
    projector_dead_letters("default"),
    dead_letter_queue(COMMANDS),
    poison_queue("default"),
)


@dataclass(slots=True)
class BusReport:
    """What was found, and how much there was to look at."""

    findings: list[Finding] = field(default_factory=list)
    runs: int = 0
    published: int = 0
    heard: int = 0
    rebuilt: Rebuilt = field(default_factory=Rebuilt)


async def checked(fleet: BusFleet, started: Collection[str]) -> BusReport:
    """Look at everything; *started* are the runs that there have to be."""
    fleet.arrivals.look()
    expected = published(fleet.urls[0])
    report = BusReport(runs=len(expected), published=sum(map(len, expected.values())))
    report.heard = len(fleet.arrivals.messages)
    report.findings += breaches(fleet.urls[0])
    report.findings += _lost_runs(expected.keys(), started)
    report.findings += heard_findings(expected, fleet.arrivals.by_run())
    report.findings += _left_over(fleet)
    report.findings += _wrong_rows(fleet, expected)
    report.rebuilt = await _rebuilt(fleet)
    if report.rebuilt.level != report.rebuilt.runs:
        what = f"{report.rebuilt.runs - report.rebuilt.level} of {report.rebuilt.runs} differ from a rebuild"
        report.findings.append(Finding("snapshots_equal_a_rebuild", "all", None, what))
    return report


def _lost_runs(found: Collection[str], started: Collection[str]) -> Iterator[Finding]:
    for run_id in sorted(set(started) ^ set(found)):
        what = "it was started, and published nothing" if run_id in started else "nobody started it"
        yield Finding("runs_are_those_that_were_started", run_id, None, what)


def heard_findings(
    expected: Mapping[str, Sequence[int]], heard: Mapping[str, Sequence[Heard]]
) -> Iterator[Finding]:
    """Yield what is wrong with what was *heard*, by run and in order; *expected* are the runs' public events.

    Exactly these were heard, each under the id that the contract gives it, in the order of the journal, and
    each names the one before.
    """
    for run_id in sorted(expected.keys() | heard.keys()):
        wanted, came = expected.get(run_id, ()), heard.get(run_id, ())
        seqs = [one.run_seq for one in came]
        for seq in sorted(set(wanted) - set(seqs)):
            yield Finding("every_event_arrives", run_id, seq, "it never came")
        for seq in sorted(set(seqs) - set(wanted)):
            yield Finding("nothing_else_arrives", run_id, seq, "the journal does not publish it")
        if len(set(seqs)) < len(seqs):
            yield Finding("an_event_has_one_id", run_id, None, f"{seqs} came under different ids")
        elif seqs != sorted(seqs):
            yield Finding("events_come_in_order", run_id, None, f"first came in the order {seqs}")
        before: int | None = None
        for one in sorted(came, key=lambda one: one.run_seq):
            if one.prev_seq != before:
                yield Finding("events_are_chained", run_id, one.run_seq, f"{one.prev_seq}, not {before}")
            if one.event_id != _id_of(one):
                yield Finding("ids_are_made_of_keys", run_id, one.run_seq, one.event_id)
            before = one.run_seq


def _id_of(heard: Heard) -> str:
    """Return the event's id as the contract has it; no step of these runs has a key."""
    step = "RUN" if heard.step_id is None else heard.step_id
    key = f"{heard.run_id}|{step}|{heard.logical_attempt}|{heard.type}|{heard.plan_version}"
    return str(uuid.UUID(bytes=hashlib.sha256(key.encode()).digest()[:16]))


def _left_over(fleet: BusFleet) -> Iterator[Finding]:
    owed = fleet.owed()
    if owed:
        yield Finding("the_outbox_is_empty", "all", None, f"{owed} rows are left")
    depths = {one["name"]: one["ready"] + one["unacknowledged"] for one in fleet.queues()}
    for queue in DEAD_LETTERS:
        if depths.get(queue):
            yield Finding("there_are_no_dead_letters", queue, None, f"{depths[queue]} messages")


def _wrong_rows(fleet: BusFleet, expected: Mapping[str, Sequence[int]]) -> Iterator[Finding]:
    """Yield snapshots that are missing, stale, behind, or of another end than their runs have."""
    rows = {
        run_id: (status, seq, stale)
        for run_id, status, seq, stale in fleet.rows(
            "SELECT run_id, status, last_event_seq, stale FROM tidewheel_snapshots"
        )
    }
    for run_id, seqs in expected.items():
        status = "FAILED" if letters.fails(letters.number_of(run_id)) else "COMPLETED"
        wanted = (status, max(seqs), False)
        if rows.get(run_id) != wanted:
            yield Finding("snapshots_are_level", run_id, None, f"{rows.get(run_id)}, not {wanted}")


async def _rebuilt(fleet: BusFleet) -> Rebuilt:
    store = await open_store(fleet.urls[0])
    try:
        return await rebuild(store, "default", dry_run=True)
    finally:
        await store.close()
