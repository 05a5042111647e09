"""``tidewheel journal verify``: every breach of the rules of a journal, or of many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from tidewheel.cli import files, output
from tidewheel.cli.connecting import Where, stored
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.failure import Failure
from tidewheel.cli.listing import every_run
from tidewheel.cli.live_line import LiveLine
from tidewheel.cli.recorded import journal_of
from tidewheel.cli.timeline.text import counted
from tidewheel.journal.rules.registry import Breach
from tidewheel.journal.verify import verify, verify_bytes
from tidewheel.sdk.door import check_any_run_id
from tidewheel.store.errors import Unreadable
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef


def check_source(file: str | None, run_ids: list[str], *, every: bool) -> None:
    """Refuse a command line that names no journal, or names it twice."""
    if (file is not None) + bool(run_ids) + every != 1:
        message = "name what to verify: --file F, the IDs of runs, or --all"
        raise Failure.usage(message, "tidewheel journal verify")


def run(file: str, *, as_json: bool) -> ExitCode:
    """Print one breach of the journal in *file* per line."""
    data = files.read_bytes(file)
    breaches = verify_bytes(data)
    for breach in breaches:
        output.emit_json(breach.to_json())
    if not as_json:
        output.say(f"{files.shown(file)}: {_summary(data, len(breaches))}")
    return ExitCode.FINDING if breaches else ExitCode.OK


def run_stored(where: Where, run_ids: list[str] | None, *, as_json: bool) -> ExitCode:
    """Print one breach per line of these runs of the store, or of all of them."""
    return asyncio.run(_verify_stored(where, run_ids, as_json=as_json))


async def _verify_stored(where: Where, run_ids: list[str] | None, *, as_json: bool) -> ExitCode:
    runs = events = found = 0
    async with stored(where) as (store, namespace):
        with LiveLine(wanted=not as_json) as line:
            async for ref in _chosen(store, namespace, run_ids):
                count, breaches = await breaches_of(store, ref)
                runs, events, found = runs + 1, events + count, found + len(breaches)
                for breach in breaches:
                    with line.aside():
                        output.emit_json({"run_id": ref.run_id, **breach.to_json()})
                line.show(f"{counted(runs, 'run')}, {counted(events, 'event')} verified")
    if not as_json:
        what = f"{found:,} breach{'' if found == 1 else 'es'}" if found else "valid"
        output.say(f"{counted(runs, 'run')}, {counted(events, 'event')}, {what}")
    return ExitCode.FINDING if found else ExitCode.OK


async def breaches_of(store: Store, ref: RunRef) -> tuple[int, list[Breach]]:
    """Return how many events a run's journal has, and the rules it breaks."""
    try:
        entries = await journal_of(store, ref)
    except Unreadable as problem:
        return 0, [Breach("FORMAT", problem.run_seq, str(problem))]
    return len(entries), verify(entries)


async def _chosen(store: Store, namespace: str, run_ids: list[str] | None) -> AsyncIterator[RunRef]:
    if run_ids is None:
        async for record in every_run(store, namespace):
            yield record.ref
        return
    for run_id in run_ids:
        yield RunRef(namespace, check_any_run_id(run_id))


def _summary(data: bytes, breaches: int) -> str:
    if breaches:
        return "1 breach" if breaches == 1 else f"{breaches} breaches"
    events = len(msgspec.json.decode(data, type=list[msgspec.Raw]))
    return f"{events} event{'' if events == 1 else 's'}, valid"
