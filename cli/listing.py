"""All runs of a namespace, a page at a time: however many there are, few are in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from tidewheel.store.protocol import RunFilter, Store
from tidewheel.store.records import RunRecord

PAGE: Final = 500


async def every_run(store: Store, namespace: str, *, open_only: bool = False) -> AsyncIterator[RunRecord]:
    """Give each run, newest first; one that is started meanwhile may be left out."""
    before: bytes | None = None
    while True:
        which = RunFilter(namespace=namespace, open_only=open_only, limit=PAGE, before=before)
        page = await store.runs(which)
        for record in page:
            yield record
        if len(page) < PAGE:
            return
        before = page[-1].key
