"""The store in Postgres: connections, the shared rules and the statements put together.

One connection writes in groups, the others read. The rules of an append are in ``ledger``, the functions it
calls in ``functions``, the statements in ``sql``. The store's clock is the database's.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import psycopg

from tidewheel.journal.events import Entry
from tidewheel.store.append import Append, Appended
from tidewheel.store.columns import micros, moment
from tidewheel.store.counting import Counters
from tidewheel.store.gathering import Gathering
from tidewheel.store.postgres import keeping, reading
from tidewheel.store.postgres.admission import PostgresAdmission
from tidewheel.store.postgres.config import PostgresConfig
from tidewheel.store.postgres.database import Database
from tidewheel.store.postgres.faults import is_lost, is_worth_repeating, pause, translated
from tidewheel.store.postgres.memory import Memory
from tidewheel.store.postgres.outbox import PostgresOutbox
from tidewheel.store.postgres.projections import PostgresProjections
from tidewheel.store.postgres.sketches import FIRST_REVISION, read_sketch
from tidewheel.store.postgres.snapshots import PostgresSnapshots
from tidewheel.store.postgres.transaction import PostgresTransaction, StepLink
from tidewheel.store.postgres.writer import Writer
from tidewheel.store.protocol import Answered, Due, Loaded, LoadedStep, RunFilter
from tidewheel.store.records import RunRecord, RunRef, WorkerRecord
from tidewheel.store.revision import NEWEST, is_newer, lacking, mismatch

#: Something that was written elsewhere is noticed after this long: nothing is sent between processes.
POLL_S = 0.2
#: So many runs are deleted in one transaction, so that nobody waits long for it.
RETIRE_GROUP = 100
#: So many transactions delete runs with their partitions, before others have their turn.
RETIRE_ROUNDS_MAX = 1_000
#: How often a transaction is repeated that certainly did nothing.
TRIES_MAX = 3

#: The functions of the database that this release calls.
FUNCTIONS = (
    "tidewheel_now_v1",
    "tidewheel_lock_v2",
    "tidewheel_look_v2",
    "tidewheel_write_v2",
    "tidewheel_write_known_v2",
    "tidewheel_retire_runs_v2",
    "tidewheel_retire_partitions_v2",
    "tidewheel_make_partitions_v2",
)

T = TypeVar("T")
Connection = psycopg.AsyncConnection[Any]


class PostgresStore:
    """Journals in a Postgres database. Open it with ``PostgresStore.open``; use it from one event loop."""

    def __init__(
        self, database: Database, config: PostgresConfig, clock: Callable[[], float] | None = None
    ) -> None:
        self.counters = Counters()
        self._database = database
        self._config = config
        self._clock = clock
        #: Set by the next commit; made when somebody waits for one.
        self._changed: asyncio.Event | None = None
        self._loads = Gathering(self._load)
        self._finds = Gathering(self._find)
        self._journals = Gathering(self._journal)
        self._memory = Memory(config.remembered_max)
        self._writer = Writer(database, self.counters, self._note_change, clock, self._memory)
        self.outbox = PostgresOutbox(self._with, self._given_now)
        self.snapshots = PostgresSnapshots(self._with, self._given_now)
        self.projections = PostgresProjections(self._with)
        self.admission = PostgresAdmission(self._with, self._given_now)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        auto_migrate: bool = False,
        config: PostgresConfig | None = None,
        clock: Callable[[], float] | None = None,
    ) -> PostgresStore:
        """Open the database at *url*.

        It has to have the schema of this release, or is brought to it if *auto_migrate*; else
        ``SchemaMismatch``. *clock* stands in for the database's clock, in tests.
        """
        config = config or PostgresConfig()
        store = cls(Database(url, config), config, clock)
        try:
            await store._prepare(url, auto_migrate=auto_migrate)
        except BaseException:
            await store.close()
            raise
        return store

    async def _prepare(self, url: str, *, auto_migrate: bool) -> None:
        revision = await self._revision()
        if (revision == NEWEST or is_newer(revision)) and await self._has_functions():
            return
        if not auto_migrate:
            shown = self._database.shown
            raise lacking(shown) if revision == NEWEST else mismatch(shown, revision)
        from tidewheel.store.postgres.migrating import migrate_database  # noqa: PLC0415 - takes half a second

        await asyncio.to_thread(migrate_database, url)

    async def _has_functions(self) -> bool:
        """Tell whether a newer release's schema has all that this release calls.

        Migrations only add. What an older release needs goes away with the functions it calls, in the
        release after; so processes of this one go on, and start, while a fleet is upgraded.
        """
        ((count,),) = await self._rows(
            "SELECT count(DISTINCT proname) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace"
            " AND proname = ANY (%(names)s)",
            {"names": list(FUNCTIONS)},
        )
        return bool(count == len(FUNCTIONS))

    async def _revision(self) -> str | None:
        ((table,),) = await self._rows("SELECT to_regclass('tidewheel_version')::text", {})
        if table is None:
            return None
        rows = await self._rows("SELECT version_num FROM tidewheel_version", {})
        return str(rows[0][0]) if rows else None

    # Writing

    async def append(self, batch: Sequence[Append]) -> list[Appended]:
        """Write all of *batch*, in transactions that other calls may share."""
        return await self._writer.append(batch)

    def submit(self, request: Append, answered: Answered) -> None:
        """Write *request* in a transaction that others share, and call *answered* then."""
        self._writer.submit(request, answered)

    def flush(self) -> None:
        """Begin to write what was submitted."""
        self._writer.flush()

    @contextlib.asynccontextmanager
    async def transaction(self, *, is_async: bool = False) -> AsyncIterator[PostgresTransaction]:
        """Begin a transactional step over a connection of its own; it blocks unless *is_async*."""
        link = await self._do_safely(StepLink.open(self._database, is_async=is_async))
        transaction = PostgresTransaction(self._database, link, self._clock)
        try:
            yield transaction
        finally:
            await asyncio.shield(transaction.close())
            if transaction.is_committed:
                self.counters.commits += 1
                self._note_change()

    # Reading

    def sketched(self, sketch: bytes) -> Loaded | None:
        """Return the run that a hint carries, and remember it as it was then."""
        loaded = read_sketch(sketch) if self._memory.is_used else None
        if loaded is not None:
            self._memory.learn(loaded.run, (), (), FIRST_REVISION)
        return loaded

    async def load(self, run: RunRef, *, after: int | None = None) -> Loaded | None:
        """Read a run's current segment, or what follows *after*."""
        found = await self._loads.answer((run, after))
        if found is None:
            return None
        loaded, revision = found
        if revision is not None:
            self._memory.learn(loaded.run, loaded.steps, loaded.timers, revision)
        self.counters.events_read += len(loaded.entries)
        return loaded

    async def load_step(self, run: RunRef, path: str) -> LoadedStep | None:
        """Read an open step and what scheduled it."""
        step = await reading.load_step(self._rows, run, path, self._given_now())
        self.counters.events_read += step is not None
        return step

    async def find(self, run: RunRef) -> RunRecord | None:
        """Read a run's row."""
        return await self._finds.answer(run)

    async def journal(self, run: RunRef, *, after: int = -1) -> list[Entry] | None:
        """Read a run's journal, or what follows *after*."""
        entries = await self._journals.answer((run, after))
        self.counters.events_read += len(entries or ())
        return entries

    async def runs(self, which: RunFilter) -> list[RunRecord]:
        """List runs, newest first."""
        return await reading.runs(self._rows, which)

    async def now(self) -> dt.datetime:
        """Read the clock."""
        given = self._given_now()
        return moment(await reading.now(self._rows) if given is None else given)

    async def changed(self, timeout_s: float) -> None:
        """Wait for a commit of this process, or a little: what others write is not announced."""
        changed = self._changed = self._changed or asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(timeout_s, POLL_S)):
                await changed.wait()

    def _note_change(self) -> None:
        if self._changed is not None:  # somebody waits for it
            self._changed.set()
            self._changed = None

    # Looking after things

    async def claim_due(self, *, limit: int) -> Due:
        """Take what is due; rows are locked only if something is."""

        async def claim(connection: Connection) -> Due:
            next_at, now = await keeping.next_at(connection, self._given_now())
            if next_at is None or next_at > now:
                return Due(now=now, next_at=next_at)
            return await keeping.claim_due(connection, now, limit)

        return await self._with(claim)

    async def register(self, worker: WorkerRecord) -> None:
        """Announce a worker, or what it has now."""
        await self._with(lambda connection: keeping.register(connection, worker))

    async def renew(self, worker_id: str, lease_s: float) -> bool:
        """Say that a worker is alive."""
        return await self._with(
            lambda connection: keeping.renew(connection, worker_id, lease_s, self._given_now())
        )

    async def workers(self) -> list[WorkerRecord]:
        """List the workers that were not given up."""
        return await reading.workers(self._rows)

    async def give_up(self, worker_ids: Sequence[str]) -> None:
        """Take workers for dead."""
        await self._with(lambda connection: keeping.give_up(connection, worker_ids, self._given_now()))

    async def lost_owners(self) -> list[str]:
        """List who owns runs and is not registered."""
        return await self._with(keeping.lost_owners)

    async def purge(self, namespace: str, *, ended_before: dt.datetime, limit: int) -> int:
        """Delete runs that ended before then, a few in each transaction."""
        deleted = 0
        while deleted < limit:
            group = min(RETIRE_GROUP, limit - deleted)

            async def retire(connection: Connection, group: int = group) -> int:
                return await keeping.retire_runs(connection, namespace, ended_before, group)

            found = await self._with(retire)
            deleted += found
            if found < group:
                break
        return deleted

    async def tend(self, namespace: str, *, ended_before: dt.datetime | None) -> int:
        """Make the partitions of the coming time, and drop those whose runs all ended before then."""
        days, ahead = self._config.partition_days, self._config.partitions_ahead
        await self._with(
            lambda connection: keeping.make_partitions(connection, self._given_now(), days=days, ahead=ahead)
        )
        if ended_before is None:
            return 0
        before, deleted = ended_before, 0
        for _ in range(RETIRE_ROUNDS_MAX):
            found = await self._with(
                lambda connection: keeping.retire_partitions(connection, namespace, before)
            )
            deleted += found
            if not found:
                break
        return deleted

    async def close(self) -> None:
        """Finish what was asked for and close all connections. May be called twice."""
        await self._writer.close()
        await self._database.close()

    # Reading together

    async def _load(
        self, asked: Sequence[tuple[RunRef, int | None]]
    ) -> Sequence[reading.LoadedWithRevision | Exception | None]:
        return await reading.load(self._rows, asked, self._given_now())

    async def _find(self, refs: Sequence[RunRef]) -> Sequence[RunRecord | Exception | None]:
        return await reading.find(self._rows, refs)

    async def _journal(self, asked: Sequence[tuple[RunRef, int]]) -> Sequence[list[Entry] | Exception | None]:
        return await reading.journal(self._rows, asked)

    # Connections

    async def _rows(self, sql: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        async def read(connection: Connection) -> list[tuple[Any, ...]]:
            cursor = await connection.execute(sql, parameters, prepare=True, binary=True)
            return await cursor.fetchall()

        return await self._with(read)

    async def _with(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do *work* over a connection, in a transaction that may be repeated.

        Being cancelled leaves it to end by itself: a connection is never given back in the middle of
        something.
        """
        doing = asyncio.ensure_future(self._do_safely(self._repeated(work)))
        doing.add_done_callback(_hear)
        return await asyncio.shield(doing)

    async def _repeated(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        for tried in range(TRIES_MAX):
            self.counters.round_trips += 1
            try:
                async with self._database.lend() as connection:
                    return await self._database.timed(connection, work(connection))
            except Exception as error:
                is_repeated = is_worth_repeating(error) or (is_lost(error) and tried == 0)
                if not is_repeated or tried == TRIES_MAX - 1:
                    raise
                await pause(tried)
        raise AssertionError("unreachable")

    async def _do_safely(self, work: Awaitable[T]) -> T:
        """Wait for *work*, and tell what went wrong as callers of a store expect it."""
        try:
            return await work
        except Exception as error:
            told = translated(error, self._database.shown)
            if told is error:
                raise
            raise told from error

    def _given_now(self) -> int | None:
        """The time, where a test gives it."""
        return None if self._clock is None else micros(dt.datetime.fromtimestamp(self._clock(), dt.UTC))


def _hear(doing: asyncio.Future[Any]) -> None:
    """Take notice of how something ended that nobody waits for any more."""
    if not doing.cancelled():
        doing.exception()
