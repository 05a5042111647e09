"""``tidewheel run show``: how a run stands, and its timeline."""

from __future__ import annotations

import asyncio
import datetime as dt
import shutil
from typing import Any

from tidewheel.cli import output
from tidewheel.cli.connecting import Where, stored
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.recorded import journal_of
from tidewheel.cli.runs.words import mend, parked_reason
from tidewheel.cli.timeline import ROWS_MAX, draw
from tidewheel.journal.events import Entry
from tidewheel.journal.snapshot import snapshot_of, to_json
from tidewheel.sdk.door import check_any_run_id
from tidewheel.sdk.ending import not_found
from tidewheel.store.records import RunRecord, RunRef

#: Of output that no terminal shows.
WIDTH_ELSEWHERE = 120


def run(where: Where, run_id: str, *, every: bool, ascii_only: bool, as_json: bool) -> ExitCode:
    """Print the run."""
    check_any_run_id(run_id)
    record, entries, now = asyncio.run(_read(where, run_id))
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
    for line in (lines[0], *_header(record), *lines[1:]):
        output.emit(line)
    return ExitCode.OK


async def _read(where: Where, run_id: str) -> tuple[RunRecord, list[Entry], dt.datetime]:
    async with stored(where) as (store, namespace):
        run = RunRef(namespace, run_id)
        entries = await journal_of(store, run)
        record = await store.find(run)
        if record is None:
            raise not_found(run)
        return record, entries, await store.now()


def _header(record: RunRecord) -> list[str]:
    """Say what the journal does not: where the run is executed, and why it is not."""
    lines = [f"started {record.created_at:%Y-%m-%d %H:%M:%SZ}, queue {record.queue}"]
    if record.parked is not None:
        lines.append(f"parked ({record.parked}): {parked_reason(record)}")
        lines.append(f"  {mend(record)}")
    return lines


def _snapshot(record: RunRecord, entries: list[Entry]) -> dict[str, Any]:
    """Return the snapshot; of a parked run it says so too."""
    snapshot = to_json(snapshot_of(entries, record.run_id))
    if record.parked is not None:
        snapshot |= {"parked": record.parked, "parkedReason": record.parked_reason}
    return snapshot
