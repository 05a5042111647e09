"""What can be asked of the database without writing: one function per question, each one statement."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from tidewheel.journal.events import Entry, InvokeScheduled
from tidewheel.store.columns import moment
from tidewheel.store.inline_steps import inline_steps
from tidewheel.store.passages import entries_of
from tidewheel.store.postgres.arrays import BigintArray, TextArray
from tidewheel.store.postgres.json_rows import RUN, STEP, TIMER, WORKER
from tidewheel.store.protocol import Loaded, LoadedStep, RunFilter
from tidewheel.store.records import RunRecord, RunRef, WorkerRecord
from tidewheel.store.statements import statements
from tidewheel.store.states import STATES

_SQL = statements("postgres", "reading")
#: Greater than any key, which has sixteen bytes.
_AFTER_ALL = b"\xff" * 17
_decode = msgspec.json.decode

#: Executes a statement with these parameters and returns all rows.
Rows: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[list[tuple[Any, ...]]]]
#: A run, and its revision, if all of its open steps were read.
LoadedWithRevision: TypeAlias = tuple[Loaded, int | None]


async def find(rows: Rows, refs: Sequence[RunRef]) -> list[RunRecord | None]:
    """Read runs' rows."""
    found: list[RunRecord | None] = [None] * len(refs)
    for place, run_json in await rows(_SQL["find"], _named(refs)):
        found[place - 1] = RUN.record(_decode(run_json))
    return found


async def load(
    rows: Rows, asked: Sequence[tuple[RunRef, int | None]], now: int | None
) -> list[LoadedWithRevision | Exception | None]:
    """Read the current segments of runs, or what follows an event; one may be unreadable by itself."""
    found: list[LoadedWithRevision | Exception | None] = [None] * len(asked)
    parameters = _named([ref for ref, _ in asked]) | {"afters": BigintArray.of([after for _, after in asked])}
    for place, *row in await rows(_SQL["load"], {**parameters, "now": now}):
        try:
            found[place - 1] = _loaded(row, asked[place - 1][1])
        except Exception as error:  # noqa: BLE001 - whoever asked for this one is told
            found[place - 1] = error
    return found


def _loaded(row: list[Any], after: int | None) -> LoadedWithRevision:
    run_json, step_rows, timers, alive, at, revision, *passages = row
    run = RUN.record(_decode(run_json))
    first = run.segment_seq if after is None or after < run.segment_seq else after + 1
    steps = inline_steps(run) + [STEP.record(row) for row in _list(step_rows)]
    loaded = Loaded(
        run=run,
        entries=entries_of(_passage_rows(passages), first, run.last_seq, lambda: run.run_id),
        steps=sorted(steps, key=lambda step: step.scheduled_seq),
        timers=[TIMER.record(row) for row in _list(timers)],
        alive=frozenset(_list(alive)),
        now=moment(at),
    )
    return loaded, revision


async def load_step(rows: Rows, ref: RunRef, path: str, now: int | None) -> LoadedStep | None:
    """Read an open step and what scheduled it."""
    found = await rows(_SQL["load_step"], {**ref._asdict(), "path": path, "now": now})
    if not found:
        return None
    run_json, step_json, at, *passage = found[0]
    run = RUN.record(_decode(run_json))
    inline = {step.path: step for step in inline_steps(run)}
    if path not in inline and step_json is None:
        return None
    step = inline[path] if path in inline else STEP.record(_decode(step_json))
    seq = step.scheduled_seq
    rows_found = [] if passage[0] is None else [tuple(passage)]
    (entry,) = entries_of(rows_found, seq, seq, lambda: run.run_id)
    assert isinstance(entry.event, InvokeScheduled)
    return LoadedStep(run=run, step=step, event=entry.event, now=moment(at))


async def journal(rows: Rows, asked: Sequence[tuple[RunRef, int]]) -> list[list[Entry] | Exception | None]:
    """Read the journals of runs, or what follows an event of each; one may be unreadable by itself."""
    found: list[list[Entry] | Exception | None] = [None] * len(asked)
    parameters = _named([ref for ref, _ in asked]) | {"afters": BigintArray.of([after for _, after in asked])}
    for place, last_seq, *passages in await rows(_SQL["journal"], parameters):
        ref, after = asked[place - 1]
        try:
            found[place - 1] = _entries(ref, passages, after + 1, last_seq)
        except Exception as error:  # noqa: BLE001 - whoever asked for this one is told
            found[place - 1] = error
    return found


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


def _named(refs: Sequence[RunRef]) -> dict[str, Any]:
    """Return the names of runs as parameters."""
    return {
        "namespaces": TextArray.of([ref.namespace for ref in refs]),
        "run_ids": TextArray.of([ref.run_id for ref in refs]),
    }


def _entries(ref: RunRef, columns: Sequence[Sequence[Any] | None], first: int, last: int) -> list[Entry]:
    return entries_of(_passage_rows(columns), first, last, lambda: ref.run_id)


def _passage_rows(columns: Sequence[Sequence[Any] | None]) -> Iterable[tuple[Any, ...]]:
    return zip(*(column or () for column in columns), strict=True)


def _list(encoded: str | None) -> list[Any]:
    decoded: list[Any] = [] if encoded is None else _decode(encoded)
    return decoded
