"""Looking after things: what is due, who is alive, what is old. Each function is part of one transaction."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Sequence

from tidewheel.store.append import Hint
from tidewheel.store.columns import STEP, WORKER, micros, moment
from tidewheel.store.page import put_off
from tidewheel.store.protocol import Due, DueStep, DueTimer, due_timer
from tidewheel.store.records import RunRef, WorkerRecord
from tidewheel.store.statements import statements
from tidewheel.store.waiting import backoff, later

_SQL = statements("sqlite", "keeping")
_PURGE = statements("sqlite", "purge")


def next_at(connection: sqlite3.Connection) -> dt.datetime | None:
    """Return when the next thing is due."""
    (at,) = connection.execute(_SQL["next_at"]).fetchone()
    return None if at is None else moment(at)


def claim_due(connection: sqlite3.Connection, now: dt.datetime, limit: int) -> Due:
    """Take what is due, and put it off."""
    due = Due(now=now)
    due.hints = _claim_runs(connection, now, limit)
    due.timers = _claim_timers(connection, now, limit)
    due.steps = _claim_steps(connection, now, limit)
    due.next_at = next_at(connection)
    return due


def _claim_runs(connection: sqlite3.Connection, now: dt.datetime, limit: int) -> list[Hint]:
    rows = connection.execute(_SQL["due_runs"], (micros(now), limit)).fetchall()
    connection.executemany(
        _SQL["put_off_run"],
        [(micros(now + backoff(hints + 1)), hints + 1, key) for key, *_, hints in rows],
    )
    return [
        Hint(run=RunRef(namespace, run_id), queue=queue, alone=strikes > 0, times=hints)
        for _, namespace, run_id, queue, strikes, hints in rows
    ]


def _claim_timers(connection: sqlite3.Connection, now: dt.datetime, limit: int) -> list[DueTimer]:
    rows = connection.execute(_SQL["due_timers"], (micros(now), limit)).fetchall()
    connection.executemany(
        _SQL["put_off_timer"],
        [(micros(later(moment(fire_at), now)), key, path) for key, path, fire_at, *_ in rows],
    )
    return [due_timer(row[1:]) for row in rows]


def _claim_steps(connection: sqlite3.Connection, now: dt.datetime, limit: int) -> list[DueStep]:
    at = micros(now)
    claimed, later = [], []
    for key, namespace, run_id, queue, is_alive, *row in connection.execute(
        _SQL["due_steps"], (at, at, limit)
    ).fetchall():
        step = STEP.record(row)
        put_off(step, now)
        assert step.due_at is not None
        later.append((micros(step.due_at), step.hints, key, step.path))
        claimed.append(
            DueStep(run=RunRef(namespace, run_id), run_queue=queue, step=step, owner_is_alive=bool(is_alive))
        )
    connection.executemany(_SQL["put_off_step"], later)
    return claimed


def register(connection: sqlite3.Connection, worker: WorkerRecord) -> None:
    """Announce a worker, or what it has now."""
    connection.execute(_SQL["register"], WORKER.row(worker))


def renew(connection: sqlite3.Connection, worker_id: str, until: dt.datetime) -> bool:
    """Prolong a worker's life; False if it was given up."""
    return connection.execute(_SQL["renew"], (micros(until), worker_id)).rowcount == 1


def give_up(connection: sqlite3.Connection, worker_ids: Sequence[str], now: dt.datetime) -> None:
    """Take workers for dead: what they were executing is due now."""
    connection.executemany(_SQL["delete_worker"], [(worker_id,) for worker_id in worker_ids])
    for statement in ("runs_of_dead", "steps_of_dead"):
        connection.executemany(_SQL[statement], [(micros(now), worker_id) for worker_id in worker_ids])


def lost_owners(connection: sqlite3.Connection) -> list[str]:
    """List who owns runs and is not registered."""
    return [owner for (owner,) in connection.execute(_SQL["lost_owners"])]


def purge(namespace: str, ended_before: dt.datetime, limit: int, connection: sqlite3.Connection) -> int:
    """Delete runs that ended before then, and all that is theirs; return how many."""
    keys = connection.execute(_SQL["ended"], (namespace, micros(ended_before), limit)).fetchall()
    for statement in _PURGE.values():
        connection.executemany(statement, keys)
    return len(keys)
