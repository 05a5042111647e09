"""Making snapshots again from the journals, while projectors go on.

A snapshot that differs from what its run's journal gives is replaced by compare-and-set, as healing does it:
a projector that writes at the same time either comes first, and the run is compared again, or goes on from
the new one. One that does not differ is left alone. Snapshots differ if their canonical JSON does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final, Literal, TypeAlias

import msgspec

from tidewheel.journal.jsonform import canonical
from tidewheel.journal.snapshot import NO_EVENT, RunSnapshot, to_json
from tidewheel.projector.snapshot_sink import TRIES_MAX, made_again
from tidewheel.store.errors import StoreUnavailable, Unreadable
from tidewheel.store.protocol import RunFilter, Store
from tidewheel.store.records import RunRef
from tidewheel.store.snapshots import in_place_of

#: So many runs are listed at a time, and so many are compared side by side.
PAGE: Final = 200
SIDE_BY_SIDE_MAX: Final = 8
#: So many runs are named of those that cannot be read.
NAMED_MAX: Final = 100

#: What became of a run: it was level, was or would be written, is gone, or its journal cannot be read.
Outcome: TypeAlias = Literal["level", "written", "gone", "unreadable"]


class Rebuilt(msgspec.Struct, kw_only=True):
    """How many runs were compared, and what became of them; in a dry run nothing was written."""

    runs: int = 0
    level: int = 0
    written: int = 0
    gone: int = 0
    unreadable: int = 0
    unreadable_runs: list[str] = []
    dry_run: bool = False


async def rebuild(
    store: Store,
    namespace: str,
    *,
    run_id: str | None = None,
    dry_run: bool = False,
    progress: Callable[[Rebuilt], None] = lambda _: None,
) -> Rebuilt:
    """Compare each snapshot of *namespace*, or that of one run, with its journal; replace what differs."""
    found = Rebuilt(dry_run=dry_run)
    found_runs = pages(store, namespace) if run_id is None else _one(RunRef(namespace, run_id))
    async for page in found_runs:
        for start in range(0, len(page), SIDE_BY_SIDE_MAX):
            group = page[start : start + SIDE_BY_SIDE_MAX]
            outcomes = await asyncio.gather(*(_rebuild(store, run, dry_run=dry_run) for run in group))
            for run, outcome in zip(group, outcomes, strict=True):
                _count(found, run, outcome)
            progress(found)
    return found


async def pages(store: Store, namespace: str) -> AsyncIterator[list[RunRef]]:
    """Yield the runs there are, newest first; those that are started meanwhile are the projectors' own."""
    before: bytes | None = None
    while True:
        page = await store.runs(RunFilter(namespace=namespace, limit=PAGE, before=before))
        if not page:
            return
        yield [run.ref for run in page]
        before = page[-1].key


async def _one(run: RunRef) -> AsyncIterator[list[RunRef]]:
    yield [run]


async def _rebuild(store: Store, run: RunRef, *, dry_run: bool) -> Outcome:
    for _ in range(TRIES_MAX):
        stored = await store.snapshots.read(run)
        try:
            made = await made_again(store, run)
        except Unreadable:
            return "unreadable"
        if made is None:
            return "gone"
        held, snapshot = made
        if _is_level(stored, snapshot):
            return "level"
        if dry_run or (await store.snapshots.save([in_place_of(held, snapshot)]))[0]:
            return "written"
    raise StoreUnavailable(f"the snapshot of {run.run_id} is written by others all the time; try again")


def _is_level(stored: RunSnapshot | None, made: RunSnapshot) -> bool:
    """Tell whether they are equal; a run that has published nothing needs no snapshot."""
    if stored is None:
        return made.last_event_seq == NO_EVENT
    return canonical(to_json(stored)) == canonical(to_json(made))


def _count(found: Rebuilt, run: RunRef, outcome: Outcome) -> None:
    found.runs += 1
    match outcome:
        case "level":
            found.level += 1
        case "written":
            found.written += 1
        case "gone":
            found.gone += 1
        case "unreadable":
            found.unreadable += 1
            if len(found.unreadable_runs) < NAMED_MAX:
                found.unreadable_runs.append(run.run_id)
