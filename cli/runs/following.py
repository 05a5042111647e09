"""A run's journal as it grows."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from tidewheel.journal.events import Entry
from tidewheel.sdk.ending import not_found
from tidewheel.store.errors import StoreUnavailable
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef

#: Looks that may fail one after the other: a store may be locked for a moment.
FAILED_LOOKS_MAX: Final = 5


async def follow(store: Store, run: RunRef, *, pause_s: float = 0.5) -> AsyncGenerator[list[Entry], None]:
    """Give what there is, then what is added, for ever; nothing every *pause_s* where nothing happens."""
    seen, failed = -1, 0
    while True:
        try:
            entries = await store.journal(run, after=seen)
        except StoreUnavailable:
            failed += 1
            if failed >= FAILED_LOOKS_MAX:
                raise
            entries = []
        else:
            failed = 0
        if entries is None:
            raise not_found(run)
        if entries:
            seen = entries[-1].run_seq
        yield entries
        await store.changed(pause_s)
