"""``tidewheel run list``: runs as a table, or as JSON."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import dataclass
from typing import Any

from tidewheel.cli import output
from tidewheel.cli.aligned import aligned
from tidewheel.cli.connecting import Where, stored
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.timeline.text import counted, cut, duration, plain
from tidewheel.journal.ids import check_name
from tidewheel.sdk.door import check_page_size, check_status
from tidewheel.store.protocol import RunFilter
from tidewheel.store.records import RunRecord

_HEAD = ("RUN", "WORKFLOW", "STATUS", "STARTED", "TOOK", "")
_NOTE_COLUMNS_MAX = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which runs to list."""

    status: str | None
    workflow: str | None
    parked: bool
    limit: int

    def filter(self, namespace: str) -> RunFilter:
        """Return the question to the store, refusing what has no answer."""
        return RunFilter(
            namespace=namespace,
            workflow=None if self.workflow is None else check_name(self.workflow, "workflow"),
            status=None if self.status is None else check_status(self.status.upper()),
            parked_only=self.parked,
            limit=check_page_size(self.limit),
        )


def run(where: Where, chosen: Chosen, *, as_json: bool) -> ExitCode:
    """Print the runs, the newest first."""
    chosen.filter("default")  # what is wrong with it is told before anything is opened
    records, now = asyncio.run(_read(where, chosen))
    if as_json:
        output.emit_json([as_json_value(record) for record in records])
        return ExitCode.OK
    if records:
        for line in aligned([_HEAD, *(_row(record, now) for record in records)]):
            output.emit(line)
    more = f"; --limit {chosen.limit} was reached" if len(records) == chosen.limit else ""
    output.say(counted(len(records), "run") + more)
    return ExitCode.OK


async def _read(where: Where, chosen: Chosen) -> tuple[list[RunRecord], dt.datetime]:
    async with stored(where) as (store, namespace):
        return await store.runs(chosen.filter(namespace)), await store.now()


def as_json_value(record: RunRecord) -> dict[str, Any]:
    """Return a run's row as programs read it."""
    return {
        "run_id": record.run_id,
        "workflow": record.workflow,
        "version": record.version,
        "status": record.status,
        "queue": record.queue,
        "cancelling": record.cancelling,
        "parked": record.parked,
        "parked_reason": record.parked_reason,
        "created_at": output.plain(record.created_at),
        "updated_at": output.plain(record.updated_at),
        "ended_at": output.plain(record.ended_at),
    }


def _row(record: RunRecord, now: dt.datetime) -> tuple[str, ...]:
    took = duration(((record.ended_at or now) - record.created_at).total_seconds())
    notes: list[str] = []
    if record.cancelling:
        notes.append("cancelling")
    if record.parked is not None:
        notes.append(f"parked ({record.parked}): {plain(record.parked_reason or '')}")
    started = record.created_at.strftime("%Y-%m-%d %H:%M:%SZ")
    note = cut(", ".join(notes), _NOTE_COLUMNS_MAX)
    return (plain(record.run_id), plain(record.workflow), record.status, started, took, note)
