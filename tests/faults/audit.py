"""What must hold of the files after a run has ended, however often its processes died."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.ledger import Ledger, Line, repeated_attempts
from tests.faults.story import EXPECTED
from tidewheel.journal import events as ev
from tidewheel.journal.verify import verify
from tidewheel.store.protocol import RunFilter
from tidewheel.store.records import RunRecord
from tidewheel.store.sqlite import reading

#: Rows of these are about what is not over.
_OPEN_TABLES = ("tidewheel_steps", "tidewheel_timers", "tidewheel_promises")


def journals(file: Path) -> dict[str, tuple[RunRecord, list[ev.Entry]]]:
    """Read every run with its journal."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        found = reading.runs(connection, RunFilter(namespace="default", limit=1000))
        return {run.run_id: (run, reading.journal(connection, run.ref, -1) or []) for run in found}


def rows(file: Path, sql: str) -> list[Any]:
    """Execute a statement of the test's own."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        return connection.execute(sql).fetchall()


def completed_keys(file: Path) -> set[str]:
    """Return the idempotency keys of all steps whose completion is in a journal."""
    return {key for key, _attempt in _completions(journals(file))}


class Death(NamedTuple):
    """What was there when a process had died."""

    #: The idempotency keys of the steps that were completed.
    completed: set[str]
    #: How often bodies had been executed.
    executions: int


def findings(folder: Path, result: Any, deaths: Sequence[Death]) -> list[str]:
    """Return everything that is wrong with the story's files now that it has come to *result*."""
    known = journals(folder / "store.db")
    lines = Ledger(folder).lines()
    wrong = [*story_findings(result, known), *journal_findings(folder), *body_findings(known, lines)]
    for death in deaths:
        again = [line for line in lines[death.executions :] if line.key in death.completed]
        wrong += [f"executed after its completion was journaled: {line}" for line in again]
    wrong += row_findings(folder, {line.key for line in lines if line.name == "stored"})
    return wrong


def story_findings(result: Any, known: dict[str, tuple[RunRecord, list[ev.Entry]]]) -> Iterator[str]:
    """Yield what is wrong with the story's result."""
    for name, value in EXPECTED.items():
        if result.get(name) != value:
            yield f"the result has {name}={result.get(name)!r}"
    events = [entry.event for entry in known["story"][1]]
    drawn = {str(event.value) for event in events if isinstance(event, ev.RandomGenerated)}
    times = {event.time.isoformat() for event in events if isinstance(event, ev.TimeRecorded) and event.time}
    if {str(result["random"]), result["uuid"]} != drawn or {result["now"]} != times:
        yield f"the result has chance or time that the journal has not: {result}, {drawn}, {times}"


def journal_findings(folder: Path) -> Iterator[str]:
    """Yield what is wrong with the journals and the rows beside them, once every run has ended."""
    file = folder / "store.db"
    for run_id, (run, entries) in journals(file).items():
        yield from (f"{run_id}: {breach}" for breach in verify(entries))
        if [entry.run_seq for entry in entries] != list(range(run.last_seq + 1)):
            yield f"{run_id}: a hole in its journal"
        if not run.ended or run.wake_at is not None or run.parked is not None:
            yield f"{run_id}: {run.status}, wake_at {run.wake_at}, parked {run.parked_reason}"
        if run.inline or run.owner is not None or run.has_promises:
            yield f"{run_id}: its row still has {run.inline}, owner {run.owner}, promises {run.has_promises}"
    for table in _OPEN_TABLES:
        left = rows(file, f"SELECT * FROM {table}")  # noqa: S608 - our own names
        if left:
            yield f"{table} still has {left}"
    dead = rows(
        folder / "store.broker.db",
        "SELECT queue, body FROM message WHERE queue LIKE '%.dlq' OR queue LIKE '%poison'",
    )
    if dead:
        yield f"dead letters: {dead}"


def body_findings(known: dict[str, tuple[RunRecord, list[ev.Entry]]], lines: Sequence[Line]) -> Iterator[str]:
    """Yield what is wrong with how often bodies were executed, and as whom."""
    for key, attempt in repeated_attempts(list(lines)):
        yield f"attempt {attempt} of {key} was executed more than once"
    keys: dict[tuple[str, str], set[str]] = defaultdict(set)
    for line in lines:
        keys[line.name, line.run_id].add(line.key)
    for body, found in keys.items():
        if len(found) > 1:
            yield f"{body} was executed under several idempotency keys: {found}"
    executed = {(line.key, line.attempt) for line in lines}
    for completion in _completions(known):
        if completion not in executed:
            yield f"{completion} is completed, but was never executed"


def row_findings(folder: Path, keys: set[str]) -> Iterator[str]:
    """Yield what is wrong with the rows of transactional steps: each of *keys* has one."""
    found = sorted(key for (key,) in rows(folder / "store.db", "SELECT key FROM shop_rows"))
    if found != sorted(keys):
        yield f"transactional steps wrote {found}, not {keys}"


def _completions(known: dict[str, tuple[RunRecord, list[ev.Entry]]]) -> set[tuple[str, int]]:
    """Return the idempotency key and attempt of each completed step, child runs aside."""
    found = set()
    for run_id, (_run, entries) in known.items():
        root = run_id.partition(":")[0]
        children = {
            entry.event.promise_id
            for entry in entries
            if isinstance(entry.event, ev.InvokeScheduled) and entry.event.kind == "workflow"
        }
        for entry in entries:
            event = entry.event
            if isinstance(event, ev.InvokeCompleted) and event.promise_id not in children:
                found.add((f"{root}:{event.promise_id}", event.attempt or 1))
    return found
