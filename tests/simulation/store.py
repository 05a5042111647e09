"""The store as one process sees it: the memory twin behind a wire that fails.

``StoreUnavailable``: nothing was written. ``CommitUnknown``: it was written or it was not, and the
caller cannot tell. A transactional step buffers its rows here and they appear with its append.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

from tests.simulation.loop import SimulatedLoop
from tests.simulation.wire import Wire, at_once
from tidewheel.journal.events import Entry
from tidewheel.store.append import Append, Appended, Completed, Fired, Retrying, Started, Verdict
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.store.memory import MemoryStore
from tidewheel.store.projections import Projections
from tidewheel.store.protocol import Answered, Due, Loaded, LoadedStep, RunFilter
from tidewheel.store.records import RunRecord, RunRef, StepRecord, WorkerRecord
from tidewheel.store.snapshots import Snapshots
from tidewheel.store.submitting import GroupCommit

T = TypeVar("T")

#: When the virtual world begins.
BEGAN_S = 1_700_000_000.0


class Clock:
    """The store's clock, which people and NTP set wrong."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.offset_s = 0.0

    def __call__(self) -> float:
        """The time in seconds since the epoch."""
        return BEGAN_S + self._loop.time() + self.offset_s


#: Told of every append that was carried out, before anybody else is.
Watch = Callable[[str, Sequence[Append], Sequence[Appended]], None]


class Database:
    """What all processes share: the twin, the users' own rows, and who watches."""

    def __init__(self, twin: MemoryStore, watch: Watch, fail: Callable[[str], None]) -> None:
        self.twin = twin
        self._fail = fail
        self.users_rows: list[Any] = []
        self._watch = watch

    def _owed(self, append: Append, before: Sequence[Append]) -> list[int]:
        """Return which facts of *append* are results of attempts that count: those are never refused."""
        run = self.twin.rows.run(append.run)
        trees = {one.run.run_id.partition(":")[0] for one in before}
        if run is None or run.ended or append.run.run_id.partition(":")[0] in trees:
            return []  # what was written before in this transaction may change what counts
        open_steps = {step.path: step for step in self.twin.rows.steps(run.key)}
        open_timers = set(self.twin.rows.open_timers[run.key])
        owed = []
        for place, fact in enumerate(append.facts):
            if isinstance(fact, Fired) and fact.path in open_timers:
                open_timers.remove(fact.path)
                owed.append(place)
            elif isinstance(fact, Completed | Retrying | Started):
                step = open_steps.pop(fact.path, None)
                if isinstance(fact, Completed) and step is not None and _counts(step, fact):
                    owed.append(place)
        return owed

    def append(self, who: str, batch: Sequence[Append], rows: Sequence[Any] = ()) -> list[Appended]:
        """Carry out *who*'s append; *rows* are written with it if all its facts are."""
        owed = [self._owed(append, batch[:place]) for place, append in enumerate(batch)]
        answers = at_once(self.twin.append(batch))
        for results, append, answer in zip(owed, batch, answers, strict=True):
            for place in results:
                if answer.verdicts[place] is not Verdict.WRITTEN:
                    self._fail(f"{answer.run.run_id}: the result {append.facts[place]} was thrown away")
        if all(verdict is Verdict.WRITTEN for answer in answers for verdict in answer.verdicts):
            self.users_rows += rows
        self._watch(who, batch, answers)
        return answers


def _counts(step: StepRecord, result: Completed) -> bool:
    """Tell whether *result* is of the attempt that was started, or of the one its owner may begin."""
    if step.state == "started":
        return step.attempt == result.attempt
    return (step.state, step.attempt + 1, step.owner) == ("scheduled", result.attempt, result.owner)


class SimulatedStore:
    """One process's store."""

    def __init__(self, wire: Wire, database: Database) -> None:
        self.name = wire.process.name
        self._wire = wire
        self._faults = wire.faults
        self._database = database
        self._twin = database.twin
        self._group_commit = GroupCommit(self)
        self.outbox = database.twin.outbox
        self.admission = database.twin.admission

    @property
    def snapshots(self) -> Snapshots:
        """What is kept for projectors, of which there are none here."""
        return self._twin.snapshots

    @property
    def projections(self) -> Projections:
        """The tables of projections, of which there are none here."""
        return self._twin.projections

    # Writing

    def submit(self, request: Append, answered: Answered) -> None:
        """Write *request* with others, and call *answered* then."""
        self._group_commit.submit(request, answered)

    def flush(self) -> None:
        """Nothing is waited for anyway."""

    async def append(self, batch: Sequence[Append]) -> list[Appended]:
        """Write all of *batch*, unless something goes wrong."""
        return await self._commit(lambda: self._database.append(self.name, batch))

    async def _commit(self, write: Callable[[], T]) -> T:
        def serve() -> T:
            if self._faults.strikes("store_unavailable"):
                raise StoreUnavailable("simulated: the store is away")
            if self._faults.strikes("commit_cut_before"):
                raise CommitUnknown("simulated: the connection was lost before the commit")
            answers = write()
            if self._faults.strikes("crash_after_commit"):
                self._wire.kill_sender()
            if self._faults.strikes("commit_cut_after"):
                raise CommitUnknown("simulated: the reply to the commit was lost")
            return answers

        return await self._wire.ask(serve)

    @contextlib.asynccontextmanager
    async def transaction(self, *, is_async: bool = False) -> AsyncIterator[SimulatedTransaction]:  # noqa: ARG002 - as the protocol has it
        """Begin a transactional step."""
        await self._read(lambda: None)
        yield SimulatedTransaction(self, self._database)

    # Reading

    def sketched(self, sketch: bytes) -> Loaded | None:
        """Return what the twin makes of a hint."""
        return self._twin.sketched(sketch)

    async def _read(self, read: Callable[[], T]) -> T:
        def serve() -> T:
            if self._faults.strikes("store_unavailable"):
                raise StoreUnavailable("simulated: the store is away")
            return read()

        return await self._wire.ask(serve)

    async def load(self, run: RunRef, *, after: int | None = None) -> Loaded | None:
        """Read a run's current segment, or what follows *after*."""
        return await self._read(lambda: at_once(self._twin.load(run, after=after)))

    async def load_step(self, run: RunRef, path: str) -> LoadedStep | None:
        """Read an open step."""
        return await self._read(lambda: at_once(self._twin.load_step(run, path)))

    async def find(self, run: RunRef) -> RunRecord | None:
        """Read a run's row."""
        return await self._read(lambda: at_once(self._twin.find(run)))

    async def journal(self, run: RunRef, *, after: int = -1) -> list[Entry] | None:
        """Read a run's journal."""
        return await self._read(lambda: at_once(self._twin.journal(run, after=after)))

    async def runs(self, which: RunFilter) -> list[RunRecord]:
        """List runs."""
        return await self._read(lambda: at_once(self._twin.runs(which)))

    async def now(self) -> dt.datetime:
        """Read the clock."""
        return await self._read(lambda: at_once(self._twin.now()))

    async def changed(self, timeout_s: float) -> None:
        """Wait a little: something may have been written."""
        await asyncio.sleep(min(timeout_s, 1.0))

    # Looking after things

    async def claim_due(self, *, limit: int) -> Due:
        """Take what is due; the claim may stand although its taker never hears of it."""
        return await self._commit(lambda: at_once(self._twin.claim_due(limit=limit)))

    async def register(self, worker: WorkerRecord) -> None:
        """Announce a worker."""
        await self._read(lambda: at_once(self._twin.register(worker)))

    async def renew(self, worker_id: str, lease_s: float) -> bool:
        """Prolong a worker's life."""
        return await self._read(lambda: at_once(self._twin.renew(worker_id, lease_s)))

    async def workers(self) -> list[WorkerRecord]:
        """List the workers that were not given up."""
        return await self._read(lambda: at_once(self._twin.workers()))

    async def give_up(self, worker_ids: Sequence[str]) -> None:
        """Take workers for dead."""
        await self._read(lambda: at_once(self._twin.give_up(worker_ids)))

    async def lost_owners(self) -> list[str]:
        """List the owners of runs that are not registered."""
        return await self._read(lambda: at_once(self._twin.lost_owners()))

    async def purge(self, namespace: str, *, ended_before: dt.datetime, limit: int) -> int:  # noqa: ARG002 - nothing is
        """Keep everything: the checks at the end want to see it."""
        return await self._read(lambda: 0 * limit)

    async def tend(self, namespace: str, *, ended_before: dt.datetime | None) -> int:  # noqa: ARG002 - as above
        """Nothing needs tending."""
        return await self._read(lambda: 0)

    async def close(self) -> None:
        """Nothing is open."""


class SimulatedTransaction:
    """A transactional step: what it adds to ``connection`` appears with its append."""

    def __init__(self, store: SimulatedStore, database: Database) -> None:
        self._store = store
        self._database = database
        self.connection: list[Any] = []

    async def commit(self, append: Append) -> Appended:
        """Write *append* and the rows together, or neither."""
        rows = tuple(self.connection)
        (answer,) = await self._store._commit(lambda: self._database.append(self._store.name, [append], rows))
        return answer
