"""``tidewheel run show``: how a run stands, and its timeline."""

from __future__ import annotations

import asyncio
import datetime as dt
import shutil
from collections.abc import Sequence
from typing import Any

from tidewheel.cli import output
from tidewheel.cli.connecting import Where, stored
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.recorded import journal_of
from tidewheel.cli.runs.words import having, mend, parked_reason
from tidewheel.cli.timeline import ROWS_MAX, draw
from tidewheel.cli.timeline.text import because, counted, plain
from tidewheel.journal import events as ev
from tidewheel.journal.events import Entry
from tidewheel.journal.snapshot import snapshot_of, to_json
from tidewheel.sdk.door import check_any_run_id
from tidewheel.sdk.ending import not_found
from tidewheel.store.records import RunRecord, RunRef, WorkerRecord
from tidewheel.workers.lifeline import is_gone

#: Of output that no terminal shows.
WIDTH_ELSEWHERE = 120
#: Parked steps that are told of one by one.
PARKED_STEPS_MAX = 10


def run(where: Where, run_id: str, *, every: bool, ascii_only: bool, as_json: bool) -> ExitCode:
    """Print the run."""
    check_any_run_id(run_id)
    record, entries, alive, now = asyncio.run(_read(where, run_id))
    if as_json:
        output.emit_json(_snapshot(record, entries))
        return ExitCode.OK
    lines = draw(
        entries,
        width=shutil.get_terminal_size((WIDTH_ELSEWHERE, 24)).columns,
        run_id=run_id,
        now=now,
        colour=output.wants_colour(),
        ascii_only=ascii_only,
        rows_max=None if every else ROWS_MAX,
    )
    for line in (lines[0], *_header(record, alive), *_parked_steps(record, entries), *lines[1:]):
        output.emit(line)
    return ExitCode.OK


async def _read(where: Where, run_id: str) -> tuple[RunRecord, list[Entry], list[WorkerRecord], dt.datetime]:
    async with stored(where) as (store, namespace):
        run = RunRef(namespace, run_id)
        entries = await journal_of(store, run)
        record = await store.find(run)
        if record is None:
            raise not_found(run)
        now = await store.now()
        workers = await store.workers() if record.parked == "needs_version" else []
        alive = [worker for worker in workers if worker.alive_until > now and not is_gone(worker)]
        return record, entries, alive, now


def _header(record: RunRecord, alive: Sequence[WorkerRecord]) -> list[str]:
    """Say what the journal does not: where the run is executed, and why it is not."""
    lines = [f"started {record.created_at:%Y-%m-%d %H:%M:%SZ}, queue {record.queue}"]
    if record.parked is not None:
        lines.append(f"parked ({record.parked}): {parked_reason(record)}")
        lines.append(f"  {mend(record)}")
        if record.parked == "needs_version":
            lines.append(f"  {having(record, alive)}")
    if record.strikes and not record.ended:
        lines.append(f"workers died with it, {counted(record.strikes, 'time')} so far")
        if record.parked is None:
            lines.append("  see their logs; it is tried alone, and quarantined after TIDEWHEEL_STRIKES")
    return lines


def _parked_steps(record: RunRecord, entries: list[Entry]) -> list[str]:
    """Say of each step that waits for an operator why it does, and what to do."""
    names: dict[str, str] = {}
    parked: dict[str, ev.Error] = {}
    for entry in entries:
        match entry.event:
            case ev.InvokeScheduled(promise_id=path, function_name=name, kind=kind):
                names[path] = name or kind
            case ev.InvokeRetrying(promise_id=path, retry_at=None, error=error):
                parked[path] = error
            case (
                ev.InvokeStarted(promise_id=path)
                | ev.InvokeCompleted(promise_id=path)
                | ev.StepRetryRequested(promise_id=path)
                | ev.StepSkipped(promise_id=path)
            ):
                parked.pop(path, None)
            case _:
                pass
    if not parked or record.ended:
        return []
    lines = [
        f"step {path} ({plain(names.get(path, ''))}) is parked: {because(error)}"
        for path, error in list(parked.items())[:PARKED_STEPS_MAX]
    ]
    if len(parked) > PARKED_STEPS_MAX:
        lines.append(f"and {len(parked) - PARKED_STEPS_MAX:,} more")
    given_up = f"`tidewheel run cancel {record.run_id}` gives this one up"
    return [*lines, f"  it waits for an operator: mend what it failed on and start another run; {given_up}"]


def _snapshot(record: RunRecord, entries: list[Entry]) -> dict[str, Any]:
    """Return the snapshot; of a run that is parked, or that workers died with, it says so too."""
    snapshot = to_json(snapshot_of(entries, record.run_id))
    if record.parked is not None:
        snapshot |= {"parked": record.parked, "parkedReason": record.parked_reason}
    if record.strikes:
        snapshot["strikes"] = record.strikes
    return snapshot
