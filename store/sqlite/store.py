"""The store in a SQLite file: threads, connections and the shared rules put together.

One thread writes, a few read, one watches for what other processes write. The rules of an append are in
``ledger``; the statements are in ``sql``. The store's clock is this machine's.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from tidewheel.journal.events import Entry
from tidewheel.store.append import Append, Appended
from tidewheel.store.counting import Counters
from tidewheel.store.errors import StoreUnavailable
from tidewheel.store.ledger import Ledger
from tidewheel.store.protocol import Answered, Due, Loaded, LoadedStep, RunFilter
from tidewheel.store.records import RunRecord, RunRef, WorkerRecord
from tidewheel.store.sqlite import keeping, reading
from tidewheel.store.sqlite.admission import SqliteAdmission
from tidewheel.store.sqlite.connection import BUSY_TIMEOUT_S, Database
from tidewheel.store.sqlite.outbox import SqliteOutbox
from tidewheel.store.sqlite.projections import SqliteProjections
from tidewheel.store.sqlite.readers import Readers
from tidewheel.store.sqlite.revision import check_revision, prepare
from tidewheel.store.sqlite.rows import SqliteRows
from tidewheel.store.sqlite.snapshots import SqliteSnapshots
from tidewheel.store.sqlite.transaction import SqliteTransaction, StepConnection
from tidewheel.store.sqlite.watcher import Watcher
from tidewheel.store.sqlite.writer import Writer
from tidewheel.store.submitting import GroupCommit
from tidewheel.store.waiting import time_ordered_key

#: So many runs are deleted in one transaction, so that nobody waits long for it.
PURGE_GROUP = 16

T = TypeVar("T")


class SqliteStore:
    """Journals in one file. Open it with ``SqliteStore.open``; use it from one event loop."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self.counters = Counters()
        self._database = database
        self._clock = clock
        self._watcher = Watcher(database)
        self._writer = Writer(database, self.counters, self._watcher.written)
        self._group_commit = GroupCommit(self)
        self._readers = Readers(database)
        #: Two steps of one event loop that both want the write lock would wait for each other.
        self._one_step_at_a_time = asyncio.Lock()
        self.outbox = SqliteOutbox(self._read, self._write, self._time)
        self.snapshots = SqliteSnapshots(self._read, self._write, self._time)
        self.projections = SqliteProjections(self._write)
        self.admission = SqliteAdmission(self._read, self._write, self._time)

    @classmethod
    async def open(
        cls,
        path: Path | str,
        *,
        auto_migrate: bool = True,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        clock: Callable[[], float] = time.time,
    ) -> SqliteStore:
        """Open the file, which is made if it is not there.

        A new file gets the newest schema. One of an older release is migrated if *auto_migrate*, else, or if
        a newer release made it, ``SchemaMismatch``.
        """
        database = Database(Path(path), busy_timeout_s=busy_timeout_s, check=check_revision)
        await asyncio.to_thread(prepare, Path(path), auto_migrate=auto_migrate, busy_timeout_s=busy_timeout_s)
        return cls(database, clock)

    # Writing

    async def append(self, batch: Sequence[Append]) -> list[Appended]:
        """Write all of *batch* in one transaction, which other calls may share."""
        return await self._write(lambda connection: self._append(connection, batch))

    def _append(self, connection: sqlite3.Connection, batch: Sequence[Append]) -> list[Appended]:
        now = self._time()
        rows = SqliteRows(connection, self.counters)
        ledger = Ledger(rows, now, lambda: time_ordered_key(now, secrets.randbits(80)))
        return [ledger.append(append) for append in batch]

    def submit(self, request: Append, answered: Answered) -> None:
        """Write *request* in a transaction that others share, and call *answered* then."""
        self._group_commit.submit(request, answered)

    def flush(self) -> None:
        """Nothing is waited for anyway."""

    @contextlib.asynccontextmanager
    async def transaction(self, *, is_async: bool = False) -> AsyncIterator[SqliteTransaction]:  # noqa: ARG002 - SQLite blocks
        """Begin a transactional step; the steps of a process take turns."""
        async with self._one_step_at_a_time:
            connection = await self._in_thread(lambda: self._database.connect_as(StepConnection))
            transaction = SqliteTransaction(
                self._database,
                connection,
                write=lambda own, append: self._append(own, [append])[0],
                in_thread=self._readers.do,
            )
            connection.lend(self._database.path)
            try:
                yield transaction
            finally:
                await asyncio.shield(self._let_go(transaction))

    async def _let_go(self, transaction: SqliteTransaction) -> None:
        try:
            await self._in_thread(transaction.close)
        except StoreUnavailable:  # the store was closed under the step
            transaction.close()
        if transaction.is_committed:
            self.counters.commits += 1
            self._watcher.written()

    # Reading

    def sketched(self, sketch: bytes) -> Loaded | None:  # noqa: ARG002 - as the protocol has it
        """Nothing is far away here: hints carry no sketches."""
        return None

    async def load(self, run: RunRef, *, after: int | None = None) -> Loaded | None:
        """Read a run's current segment, or what follows *after*."""
        loaded = await self._read(lambda connection: reading.load(connection, run, after, self._time()))
        self.counters.events_read += 0 if loaded is None else len(loaded.entries)
        return loaded

    async def load_step(self, run: RunRef, path: str) -> LoadedStep | None:
        """Read an open step and what scheduled it."""
        step = await self._read(lambda connection: reading.load_step(connection, run, path, self._time()))
        self.counters.events_read += step is not None
        return step

    async def find(self, run: RunRef) -> RunRecord | None:
        """Read a run's row."""
        return await self._read(lambda connection: reading.find(connection, run))

    async def journal(self, run: RunRef, *, after: int = -1) -> list[Entry] | None:
        """Read a run's journal, or what follows *after*."""
        entries = await self._read(lambda connection: reading.journal(connection, run, after))
        self.counters.events_read += len(entries or ())
        return entries

    async def runs(self, which: RunFilter) -> list[RunRecord]:
        """List runs, newest first."""
        return await self._read(lambda connection: reading.runs(connection, which))

    async def now(self) -> dt.datetime:
        """Read the clock."""
        return self._time()

    async def changed(self, timeout_s: float) -> None:
        """Wait for the next commit of any process."""
        await self._watcher.wait(timeout_s)

    # Looking after things

    async def claim_due(self, *, limit: int) -> Due:
        """Take what is due; the write lock is taken only if something is."""
        next_at = await self._read(keeping.next_at)
        now = self._time()
        if next_at is None or next_at > now:
            return Due(now=now, next_at=next_at)
        return await self._write(lambda connection: keeping.claim_due(connection, self._time(), limit))

    async def register(self, worker: WorkerRecord) -> None:
        """Announce a worker, or what it has now."""
        await self._write(lambda connection: keeping.register(connection, worker))

    async def renew(self, worker_id: str, lease_s: float) -> bool:
        """Say that a worker is alive."""
        lease = dt.timedelta(seconds=lease_s)
        return await self._write(
            lambda connection: keeping.renew(connection, worker_id, self._time() + lease)
        )

    async def workers(self) -> list[WorkerRecord]:
        """List the workers that were not given up."""
        return await self._read(reading.workers)

    async def give_up(self, worker_ids: Sequence[str]) -> None:
        """Take workers for dead."""
        await self._write(lambda connection: keeping.give_up(connection, worker_ids, self._time()))

    async def lost_owners(self) -> list[str]:
        """List who owns runs and is not registered."""
        return await self._read(keeping.lost_owners)

    async def purge(self, namespace: str, *, ended_before: dt.datetime, limit: int) -> int:
        """Delete runs that ended before then, a few in each transaction."""
        deleted = 0
        while deleted < limit:
            group = min(PURGE_GROUP, limit - deleted)
            found = await self._write(partial(keeping.purge, namespace, ended_before, group))
            deleted += found
            if found < group:
                break
        return deleted

    async def tend(self, namespace: str, *, ended_before: dt.datetime | None) -> int:  # noqa: ARG002 - as the protocol has it
        """A file has no partitions: there is nothing to do."""
        return 0

    async def close(self) -> None:
        """Finish what was asked for and close all connections. May be called twice."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._watcher.close()
        self._readers.close()
        self._writer.close()

    # Threads

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.wrap_future(self._writer.do(work))

    async def _read(self, question: Callable[[sqlite3.Connection], T]) -> T:
        self.counters.round_trips += 1
        return await asyncio.wrap_future(self._readers.ask(question))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        self.counters.round_trips += 1
        return await asyncio.wrap_future(self._readers.do(work))

    def _time(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self._clock(), dt.UTC)
