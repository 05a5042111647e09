"""Filling the table of a user's projection again from the journals, while projectors go on.

The table is emptied, and how far its runs were read is forgotten, in one transaction; then every run is read
from its journal. What a projector reads meanwhile is marked as read, like anything else, so each event has
its effect once. Until the end of it the table tells of some runs only, and after that of those that are still
there: what was retired cannot be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from tidewheel.journal.public import PublicEvent, published
from tidewheel.projector.projection_sink import ProjectionSink
from tidewheel.projector.rebuilding import NAMED_MAX, pages
from tidewheel.sdk.projections import ProjectionDefinition
from tidewheel.store.errors import Unreadable
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef

#: So many runs are read, and written in one transaction, at a time.
GROUP_MAX: Final = 50


class ProjectedAgain(msgspec.Struct, kw_only=True):
    """How many runs were read, or would be; those that could not be are named, with the reason."""

    projection: str
    runs: int = 0
    failed: int = 0
    failures: dict[str, str] = {}
    dry_run: bool = False


async def project_again(
    store: Store,
    definition: ProjectionDefinition,
    namespace: str,
    *,
    dry_run: bool = False,
    progress: Callable[[ProjectedAgain], None] = lambda _: None,
) -> ProjectedAgain:
    """Empty the table of *definition* and fill it from the journals of *namespace*.

    The runs of other namespaces are read by their own projectors, which find that they are behind.
    """
    found = ProjectedAgain(projection=definition.name, dry_run=dry_run)
    sink = ProjectionSink(store, definition)
    if not dry_run:
        await sink.prepare()
        await store.projections.empty(definition.table)
    async for page in pages(store, namespace):
        for start in range(0, len(page), GROUP_MAX):
            group = page[start : start + GROUP_MAX]
            if not dry_run:
                await _read(store, sink, group, found)
            found.runs += len(group)
            progress(found)
    return found


async def _read(store: Store, sink: ProjectionSink, group: Sequence[RunRef], found: ProjectedAgain) -> None:
    read = await asyncio.gather(*(_events(store, run) for run in group))
    events = {run: told for run, told in zip(group, read, strict=True) if isinstance(told, list) and told}
    for run, told in zip(group, read, strict=True):
        if isinstance(told, Unreadable):
            _note(found, run, str(told))
    if not events:
        return
    for run, followed in (await sink.take(events)).items():
        if followed.broken is not None:
            _note(found, run, f"event {followed.broken.run_seq}: {followed.reason}")


async def _events(store: Store, run: RunRef) -> list[PublicEvent] | Unreadable:
    """Return what a run has published; nothing if it is gone."""
    try:
        entries = await store.journal(run)
    except Unreadable as problem:
        return problem
    return [] if entries is None else published(entries, run.run_id, run.namespace)


def _note(found: ProjectedAgain, run: RunRef, reason: str) -> None:
    found.failed += 1
    if len(found.failures) < NAMED_MAX:
        found.failures[run.run_id] = reason
