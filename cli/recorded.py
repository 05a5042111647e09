"""A journal to look at, from a file or from the store."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tidewheel.cli import files
from tidewheel.cli.connecting import Where, stored
from tidewheel.cli.failure import Failure
from tidewheel.journal.events import Entry
from tidewheel.sdk.door import check_any_run_id
from tidewheel.sdk.ending import not_found
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef


@dataclass(frozen=True, slots=True)
class Source:
    """Where a journal comes from: a file, or a run of the store."""

    file: str | None
    run_id: str
    where: Where

    @property
    def shown(self) -> str:
        """How people know it."""
        return self.run_id if self.file is None else files.shown(self.file)

    @property
    def verify_arguments(self) -> str:
        """What `tidewheel journal verify` is told to look at the same journal."""
        return self.run_id if self.file is None else f"--file {self.file}"

    def read(self) -> list[Entry]:
        """Return the journal, which must be there and readable."""
        if self.file is not None:
            return files.read_journal(self.file)
        return asyncio.run(self._read_stored())

    async def _read_stored(self) -> list[Entry]:
        async with stored(self.where) as (store, namespace):
            return await journal_of(store, RunRef(namespace, check_any_run_id(self.run_id)))


def source_of(command: str, file: str | None, run_id: str | None, where: Where) -> Source:
    """Return the source that is named to *command*, refusing none and two."""
    if (file is None) == (run_id is None):
        message = "name one journal: a file with --file F, or a run of the store by its ID"
        raise Failure.usage(message, command)
    return Source(file, run_id or "", where)


async def journal_of(store: Store, run: RunRef) -> list[Entry]:
    """Return the journal of a run that has to be there."""
    entries = await store.journal(run)
    if entries is None:
        raise not_found(run)
    return entries
