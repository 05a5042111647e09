"""What can be asked of the database without writing: one function per question, each one statement."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from tidewheel.journal.events import Entry, InvokeScheduled
from tidewheel.store.columns import moment
from tidewheel.store.postgres.json_rows import RUN, STEP, TIMER, WORKER
from tidewheel.store.protocol import Loaded, LoadedStep, RunFilter
from tidewheel.store.records import RunRecord, RunRef, WorkerRecord
from tidewheel.store.statements import statements
from tidewheel.store.states import STATES
from tidewheel.store.stored_events import entries_of

_SQL = statements("postgres", "reading")
#: Greater than any key, which has sixteen bytes.
_AFTER_ALL = b"\xff" * 17
_decode = msgspec.json.decode

#: Executes a statement with these parameters and returns all rows.
Rows: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[list[tuple[Any, ...]]]]


async def find(rows: Rows, ref: RunRef) -> RunRecord | None:
    """Read a run's row."""
    found = await rows(_SQL["find"], ref._asdict())
    return RUN.record(_decode(found[0][0])) if found else None


async def load(rows: Rows, ref: RunRef, after: int | None, now: int | None) -> Loaded | None:
    """Read a run's current segment, or what follows *after*."""
    found = await rows(_SQL["load"], {**ref._asdict(), "after": after, "now": now})
    if not found:
        return None
    run_json, steps, timers, alive, at, *events = found[0]
    run = RUN.record(_decode(run_json))
    first = run.segment_seq if after is None or after < run.segment_seq else after + 1
    columns = [column or () for column in events]
    return Loaded(
        run=run,
        entries=entries_of(zip(*columns, strict=True), first, run.last_seq, lambda: run.run_id),
        steps=[STEP.record(row) for row in _list(steps)],
        timers=[TIMER.record(row) for row in _list(timers)],
        alive=frozenset(_list(alive)),
        now=moment(at),
    )


async def load_step(rows: Rows, ref: RunRef, path: str, now: int | None) -> LoadedStep | None:
    """Read an open step and what scheduled it."""
    found = await rows(_SQL["load_step"], {**ref._asdict(), "path": path, "now": now})
    if not found:
        return None
    run_json, step_json, at, *event = found[0]
    run, step = RUN.record(_decode(run_json)), STEP.record(_decode(step_json))
    seq = step.scheduled_seq
    (entry,) = entries_of([tuple(event)], seq, seq, lambda: run.run_id)
    assert isinstance(entry.event, InvokeScheduled)
    return LoadedStep(run=run, step=step, event=entry.event, now=moment(at))


async def journal(rows: Rows, ref: RunRef, after: int) -> list[Entry] | None:
    """Read a run's journal, or what follows *after*."""
    found = await rows(_SQL["journal"], {**ref._asdict(), "after": after})
    if not found:
        return None
    events = (row[1:] for row in found if row[1] is not None)
    return entries_of(events, after + 1, found[0][0], lambda: ref.run_id)


async def runs(rows: Rows, which: RunFilter) -> list[RunRecord]:
    """List runs, newest first."""
    asked = {
        "namespace": which.namespace,
        "before": _AFTER_ALL if which.before is None else which.before,
        "workflow": which.workflow,
        "states": None if which.status is None else STATES.get(which.status, []),
        "open_only": which.open_only,
        "limit_max": which.limit,
    }
    found = await rows(_SQL["list_parked" if which.parked_only else "list"], asked)
    return [RUN.record(_decode(row)) for (row,) in found]


async def workers(rows: Rows) -> list[WorkerRecord]:
    """List the workers that were not given up."""
    return [WORKER.record(_decode(row)) for (row,) in await rows(_SQL["workers"], {})]


async def now(rows: Rows) -> int:
    """Read the clock."""
    ((at,),) = await rows(_SQL["now"], {})
    return int(at)


def _list(encoded: str | None) -> list[Any]:
    decoded: list[Any] = [] if encoded is None else _decode(encoded)
    return decoded
