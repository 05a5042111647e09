"""Looking after things: what is due, who is alive, what is old. Each function is one transaction."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import msgspec
import psycopg

from tidewheel.store.append import Hint
from tidewheel.store.columns import micros, moment
from tidewheel.store.page import put_off
from tidewheel.store.postgres.arrays import BigintArray, ByteaArray, TextArray
from tidewheel.store.postgres.json_rows import STEP, WORKER
from tidewheel.store.protocol import Due, DueStep, DueTimer, due_timer
from tidewheel.store.records import RunRef, WorkerRecord
from tidewheel.store.statements import statements
from tidewheel.store.waiting import backoff, later

_SQL = statements("postgres", "keeping")
_decode = msgspec.json.decode

Connection = psycopg.AsyncConnection[Any]


async def next_at(connection: Connection, now: int | None) -> tuple[dt.datetime | None, dt.datetime]:
    """Return when the next thing is due, and the time."""
    cursor = await connection.execute(_SQL["next_at"], {"now": now}, prepare=True)
    row = await cursor.fetchone()
    assert row is not None
    return (None if row[0] is None else moment(row[0])), moment(row[1])


async def claim_due(connection: Connection, now: dt.datetime, limit: int) -> Due:
    """Take what is due, and put it off."""
    asked = {"now": micros(now), "limit_max": limit}
    async with connection.transaction():
        async with connection.pipeline():
            runs, timers, steps = [
                await connection.execute(_SQL[name], asked, prepare=True)
                for name in ("due_runs", "due_timers", "due_steps")
            ]
        due = Due(now=now)
        due.hints = await _put_off_runs(connection, await runs.fetchall(), now)
        due.timers = await _put_off_timers(connection, await timers.fetchall(), now)
        due.steps = await _put_off_steps(connection, await steps.fetchall(), now)
    due.next_at, _ = await next_at(connection, micros(now))
    return due


async def _put_off_runs(connection: Connection, rows: Sequence[Any], now: dt.datetime) -> list[Hint]:
    if rows:
        later = {
            "run_keys": ByteaArray.of([row[0] for row in rows]),
            "wake_ats": BigintArray.of([micros(now + backoff(row[-1] + 1)) for row in rows]),
            "hints": BigintArray.of([row[-1] + 1 for row in rows]),
        }
        await connection.execute(_SQL["put_off_runs"], later, prepare=True)
    return [
        Hint(run=RunRef(namespace, run_id), queue=queue, alone=strikes > 0, times=hints)
        for _, namespace, run_id, queue, strikes, hints in rows
    ]


async def _put_off_timers(connection: Connection, rows: Sequence[Any], now: dt.datetime) -> list[DueTimer]:
    if rows:
        put_off_to = {
            "run_keys": ByteaArray.of([row[0] for row in rows]),
            "paths": TextArray.of([row[1] for row in rows]),
            "due_ats": BigintArray.of([micros(later(moment(row[2]), now)) for row in rows]),
        }
        await connection.execute(_SQL["put_off_timers"], put_off_to, prepare=True)
    return [due_timer(row[1:]) for row in rows]


async def _put_off_steps(connection: Connection, rows: Sequence[Any], now: dt.datetime) -> list[DueStep]:
    claimed = []
    for _, namespace, run_id, queue, is_alive, row in rows:
        step = STEP.record(_decode(row))
        put_off(step, now)
        claimed.append(
            DueStep(run=RunRef(namespace, run_id), run_queue=queue, step=step, owner_is_alive=is_alive)
        )
    if claimed:
        steps = [due.step for due in claimed]
        later = {
            "run_keys": ByteaArray.of([row[0] for row in rows]),
            "paths": TextArray.of([step.path for step in steps]),
            "due_ats": BigintArray.of(
                [None if step.due_at is None else micros(step.due_at) for step in steps]
            ),
            "hints": BigintArray.of([step.hints for step in steps]),
        }
        await connection.execute(_SQL["put_off_steps"], later, prepare=True)
    return claimed


async def register(connection: Connection, worker: WorkerRecord) -> None:
    """Announce a worker, or what it has now."""
    row = msgspec.json.encode(WORKER.written(worker)).decode()
    await connection.execute(_SQL["register"], {"worker": row})


async def renew(connection: Connection, worker_id: str, lease_s: float, now: int | None) -> bool:
    """Prolong a worker's life; False if it was given up."""
    asked = {"worker_id": worker_id, "lease": round(lease_s * 1_000_000), "now": now}
    cursor = await connection.execute(_SQL["renew"], asked, prepare=True)
    return await cursor.fetchone() is not None


async def give_up(connection: Connection, worker_ids: Sequence[str], now: int | None) -> None:
    """Take workers for dead: what they were executing is due now."""
    asked = {"worker_ids": list(worker_ids), "now": now}
    async with connection.transaction():
        for statement in ("delete_workers", "runs_of_dead", "steps_of_dead"):
            await connection.execute(_SQL[statement], asked)


async def lost_owners(connection: Connection) -> list[str]:
    """List who owns runs and is not registered."""
    cursor = await connection.execute(_SQL["lost_owners"])
    return [owner for (owner,) in await cursor.fetchall()]


async def retire_runs(connection: Connection, namespace: str, ended_before: dt.datetime, limit: int) -> int:
    """Delete runs that ended before then, and all that is theirs; return how many."""
    asked = {"namespace": namespace, "ended_before": micros(ended_before), "limit_max": limit}
    return await _count(connection, "retire_runs", asked)


async def retire_partitions(connection: Connection, namespace: str, ended_before: dt.datetime) -> int:
    """Delete a group of the runs of a partition that all ended before then, and drop it once it has none.

    Return how many went: as long as some do, there may be more.
    """
    return await _count(
        connection, "retire_partitions", {"namespace": namespace, "ended_before": micros(ended_before)}
    )


async def make_partitions(connection: Connection, now: int | None, *, days: int, ahead: int) -> int:
    """Make the partitions of the coming time; return how many were made."""
    return await _count(connection, "make_partitions", {"now": now, "days": days, "ahead": ahead})


async def _count(connection: Connection, name: str, asked: dict[str, Any]) -> int:
    cursor = await connection.execute(_SQL[name], asked)
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])
