"""What can be asked of the file without writing: one function per question, each over one snapshot."""

from __future__ import annotations

import datetime as dt
import sqlite3

import msgspec

from tidewheel.journal.events import Entry, InvokeScheduled
from tidewheel.store.columns import RUN, STEP, TIMER, WORKER, micros
from tidewheel.store.inline_steps import inline_steps
from tidewheel.store.protocol import Loaded, LoadedStep, RunFilter
from tidewheel.store.records import RunRecord, RunRef, StepRecord, WorkerRecord
from tidewheel.store.sqlite.journal_reading import read_entries
from tidewheel.store.statements import statements
from tidewheel.store.states import STATES

_RUNS = statements("sqlite", "runs")
_OPEN = statements("sqlite", "open")
_KEEPING = statements("sqlite", "keeping")
#: Greater than any key, which has sixteen bytes.
_AFTER_ALL = b"\xff" * 17


def find(connection: sqlite3.Connection, ref: RunRef) -> RunRecord | None:
    """Read a run's row."""
    row = connection.execute(_RUNS["by_ref"], ref).fetchone()
    return None if row is None else RUN.record(row)


def load(connection: sqlite3.Connection, ref: RunRef, after: int | None, now: dt.datetime) -> Loaded | None:
    """Read a run's current segment, or what follows *after*."""
    run = find(connection, ref)
    if run is None:
        return None
    first = run.segment_seq if after is None or after < run.segment_seq else after + 1
    steps = _steps(connection, run, inline_only=after is not None)
    alive: frozenset[str] = frozenset()
    if any(step.owner is not None for step in steps):
        owners = connection.execute(_KEEPING["alive_owners"], {"run_key": run.key, "now": micros(now)})
        alive = frozenset(owner for (owner,) in owners)
    return Loaded(
        run=run,
        entries=read_entries(connection, run.key, first, run.last_seq),
        steps=steps,
        timers=[TIMER.record(row) for row in connection.execute(_OPEN["timers"], (run.key,))],
        alive=alive,
        now=now,
    )


def _steps(connection: sqlite3.Connection, run: RunRecord, *, inline_only: bool) -> list[StepRecord]:
    statement = _OPEN["inline_steps" if inline_only else "steps"]
    rows = connection.execute(statement, (run.key,))
    steps = inline_steps(run) + [STEP.record(row) for row in rows]
    return sorted(steps, key=lambda step: step.scheduled_seq)


def _step(connection: sqlite3.Connection, run: RunRecord, path: str) -> StepRecord | None:
    for step in inline_steps(run):
        if step.path == path:
            return step
    row = connection.execute(_OPEN["step"], (run.key, path)).fetchone()
    return None if row is None else STEP.record(row)


def load_step(connection: sqlite3.Connection, ref: RunRef, path: str, now: dt.datetime) -> LoadedStep | None:
    """Read an open step and what scheduled it."""
    run = find(connection, ref)
    step = None if run is None else _step(connection, run, path)
    if run is None or step is None:
        return None
    (entry,) = read_entries(connection, run.key, step.scheduled_seq, step.scheduled_seq)
    assert isinstance(entry.event, InvokeScheduled)
    return LoadedStep(run=run, step=step, event=entry.event, now=now)


def journal(connection: sqlite3.Connection, ref: RunRef, after: int) -> list[Entry] | None:
    """Read a run's journal, or what follows *after*."""
    run = find(connection, ref)
    return None if run is None else read_entries(connection, run.key, after + 1, run.last_seq)


def runs(connection: sqlite3.Connection, which: RunFilter) -> list[RunRecord]:
    """List runs, newest first."""
    states = None if which.status is None else msgspec.json.encode(STATES.get(which.status, [])).decode()
    asked = {
        "namespace": which.namespace,
        "before": _AFTER_ALL if which.before is None else which.before,
        "workflow": which.workflow,
        "states": states,
        "open_only": which.open_only,
        "limit_max": which.limit,
    }
    statement = _RUNS["list_parked" if which.parked_only else "list"]
    return [RUN.record(row) for row in connection.execute(statement, asked)]


def workers(connection: sqlite3.Connection) -> list[WorkerRecord]:
    """List the workers that were not given up."""
    return [WORKER.record(row) for row in connection.execute(_KEEPING["workers"])]
