"""The memory twin: the same rules over dicts, for tests and simulation.

One event loop, no threads; each method is one uninterrupted piece of code, as a transaction is.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import datetime as dt
import random
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from tidewheel.journal.events import Entry, InvokeScheduled
from tidewheel.journal.verify import verify
from tidewheel.store.append import Append, Appended, Hint, Verdict
from tidewheel.store.counting import Counters
from tidewheel.store.inline_steps import inline_steps
from tidewheel.store.ledger import Ledger
from tidewheel.store.memory_admission import MemoryAdmission
from tidewheel.store.memory_outbox import MemoryOutbox
from tidewheel.store.memory_projections import MemoryProjections
from tidewheel.store.memory_rows import MemoryRows
from tidewheel.store.memory_snapshots import MemorySnapshots, Runs
from tidewheel.store.page import put_off
from tidewheel.store.protocol import Answered, Due, DueStep, DueTimer, Loaded, LoadedStep, RunFilter
from tidewheel.store.records import RunRecord, RunRef, WorkerRecord
from tidewheel.store.submitting import GroupCommit
from tidewheel.store.waiting import backoff, later, time_ordered_key


class MemoryStore:
    """A store that lives as long as its process.

    *clock* gives the time in seconds since the epoch; *seed* makes keys repeatable. With *debug*
    every journal is checked against all rules after each append.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.time, seed: int | None = None, debug: bool = False
    ) -> None:
        self.rows = MemoryRows()
        self.worker_rows: dict[str, WorkerRecord] = {}
        self._clock = clock
        self._random = random.Random(seed)  # noqa: S311 - keys need be unique, not secret
        self._debug = debug
        self._written = asyncio.Event()
        self._group_commit = GroupCommit(self)
        self._users_tables: sqlite3.Connection | None = None
        self.outbox = MemoryOutbox(self.rows, self._time)
        self.snapshots = MemorySnapshots(
            Runs(
                find=lambda ref: self.rows.run(ref),  # noqa: PLW0108 - a transaction may put other rows in place
                ordered=lambda: [self.rows.runs[key] for key in sorted(self.rows.runs)],
                is_owed=lambda key: bool(self.rows.outbox.get(key)),
                now=self._time,
            )
        )
        self.projections = MemoryProjections(lambda ref: self.rows.run(ref), self.snapshots)  # noqa: PLW0108 - as above
        self.admission = MemoryAdmission(lambda: self.rows, self._time)

    @property
    def counters(self) -> Counters:
        """How much work was done."""
        return self.rows.counters

    # Writing

    async def append(self, batch: Sequence[Append]) -> list[Appended]:
        """Write all of *batch*, and tell what became of each."""
        return self._append(batch)

    def _append(self, batch: Sequence[Append]) -> list[Appended]:
        now = self._time()
        self.counters.round_trips += 1
        self.counters.commits += 1
        ledger = Ledger(self.rows, now, lambda: time_ordered_key(now, self._random.getrandbits(80)))
        answers = [ledger.append(append) for append in batch]
        if self._debug:
            for answer in answers:
                self._check(answer.run)
        written, self._written = self._written, asyncio.Event()
        written.set()
        return answers

    def _check(self, ref: RunRef) -> None:
        run = self.rows.run(ref)
        if run is not None:
            breaches = verify(self.rows.entries(run.key, 0, run.last_seq))
            assert not breaches, f"{run.run_id} breaks {breaches[:3]}"

    def submit(self, request: Append, answered: Answered) -> None:
        """Write *request* in a transaction that others share, and call *answered* then."""
        self._group_commit.submit(request, answered)

    def flush(self) -> None:
        """Nothing is waited for anyway."""

    @contextlib.asynccontextmanager
    async def transaction(self, *, is_async: bool = False) -> AsyncIterator[MemoryTransaction]:  # noqa: ARG002 - SQLite blocks
        """Lend an in-memory SQLite database, so that transactional steps can be tested."""
        if self._users_tables is None:
            self._users_tables = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection = self._users_tables
        connection.execute("SAVEPOINT step")
        transaction = MemoryTransaction(self, connection)
        try:
            yield transaction
        finally:
            if not transaction.committed:
                connection.execute("ROLLBACK TO step")
            connection.execute("RELEASE step")

    # Reading

    def sketched(self, sketch: bytes) -> Loaded | None:  # noqa: ARG002 - as the protocol has it
        """Nothing is far away here: hints carry no sketches."""
        return None

    async def load(self, run: RunRef, *, after: int | None = None) -> Loaded | None:
        """Read a run's current segment, or what follows *after*."""
        self.counters.round_trips += 1
        row = self.rows.run(run)
        if row is None:
            return None
        first = row.segment_seq if after is None or after < row.segment_seq else after + 1
        steps = inline_steps(row) + [
            msgspec.structs.replace(step)
            for step in self.rows.steps(row.key)
            if after is None or step.dispatch == "inline"
        ]
        steps.sort(key=lambda step: step.scheduled_seq)
        return Loaded(
            run=msgspec.structs.replace(row),
            entries=self.rows.entries(row.key, first, row.last_seq),
            steps=steps,
            timers=list(self.rows.open_timers[row.key].values()),
            alive=frozenset(step.owner for step in steps if step.owner and self._is_alive(step.owner)),
            now=self._time(),
        )

    async def load_step(self, run: RunRef, path: str) -> LoadedStep | None:
        """Read an open step."""
        self.counters.round_trips += 1
        row = self.rows.run(run)
        if row is None:
            return None
        inline = {step.path: step for step in inline_steps(row)}
        step = inline.get(path) or self.rows.step(row.key, path)
        if step is None:
            return None
        (entry,) = self.rows.entries(row.key, step.scheduled_seq, step.scheduled_seq)
        assert isinstance(entry.event, InvokeScheduled)
        return LoadedStep(
            run=msgspec.structs.replace(row),
            step=msgspec.structs.replace(step),
            event=entry.event,
            now=self._time(),
        )

    async def find(self, run: RunRef) -> RunRecord | None:
        """Read a run's row."""
        self.counters.round_trips += 1
        row = self.rows.run(run)
        return None if row is None else msgspec.structs.replace(row)

    async def journal(self, run: RunRef, *, after: int = -1) -> list[Entry] | None:
        """Read a run's journal."""
        self.counters.round_trips += 1
        row = self.rows.run(run)
        return None if row is None else self.rows.entries(row.key, after + 1, row.last_seq)

    async def runs(self, which: RunFilter) -> list[RunRecord]:
        """List runs, newest first."""
        found = [
            msgspec.structs.replace(run)
            for key, run in sorted(self.rows.runs.items(), reverse=True)
            if _matches(run, which) and (which.before is None or key < which.before)
        ]
        return found[: which.limit]

    async def now(self) -> dt.datetime:
        """Read the clock."""
        return self._time()

    async def changed(self, timeout_s: float) -> None:
        """Wait for the next append."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._written.wait()

    # Looking after things

    async def claim_due(self, *, limit: int) -> Due:
        """Take what is due."""
        now = self._time()
        due = Due(now=now)
        for run in list(self.rows.runs.values()):
            self._claim_wake(run, due, limit)
            self._claim_timers(run, due, limit)
            self._claim_steps(run, due, limit)
        due.next_at = min(self._moments(), default=None)
        return due

    def _claim_wake(self, run: RunRecord, due: Due, limit: int) -> None:
        if run.wake_at is not None and run.wake_at <= due.now and len(due.hints) < limit:
            due.hints.append(Hint(run=run.ref, queue=run.queue, alone=run.strikes > 0, times=run.hints))
            run.hints += 1
            run.wake_at = due.now + backoff(run.hints)

    def _claim_timers(self, run: RunRecord, due: Due, limit: int) -> None:
        for timer in list(self.rows.open_timers[run.key].values()):
            if timer.due_at <= due.now and len(due.timers) < limit:
                due_at = later(timer.fire_at, due.now)
                self.rows.put_timer(run.key, msgspec.structs.replace(timer, due_at=due_at))
                due.timers.append(
                    DueTimer(
                        run=run.ref,
                        path=timer.path,
                        fire_at=timer.fire_at,
                        queue=run.queue,
                        alone=run.strikes > 0,
                        is_parked=run.parked is not None,
                    )
                )

    def _claim_steps(self, run: RunRecord, due: Due, limit: int) -> None:
        for step in self.rows.steps(run.key):
            if step.due_at is not None and step.due_at <= due.now and len(due.steps) < limit:
                put_off(step, due.now)
                due.steps.append(
                    DueStep(
                        run=run.ref,
                        run_queue=run.queue,
                        step=msgspec.structs.replace(step),
                        owner_is_alive=step.owner is not None and self._is_alive(step.owner),
                    )
                )

    def _moments(self) -> list[dt.datetime]:
        moments = [run.wake_at for run in self.rows.runs.values()]
        moments += [timer.due_at for timers in self.rows.open_timers.values() for timer in timers.values()]
        moments += [step.due_at for steps in self.rows.open_steps.values() for step in steps.values()]
        return [moment for moment in moments if moment is not None]

    async def register(self, worker: WorkerRecord) -> None:
        """Announce a worker."""
        self.worker_rows[worker.worker_id] = worker

    async def renew(self, worker_id: str, lease_s: float) -> bool:
        """Prolong a worker's life."""
        worker = self.worker_rows.get(worker_id)
        if worker is None:
            return False
        until = self._time() + dt.timedelta(seconds=lease_s)
        self.worker_rows[worker_id] = msgspec.structs.replace(worker, alive_until=until)
        return True

    async def workers(self) -> list[WorkerRecord]:
        """List the workers that were not given up."""
        return list(self.worker_rows.values())

    async def give_up(self, worker_ids: Sequence[str]) -> None:
        """Take workers for dead."""
        now = self._time()
        for worker_id in worker_ids:
            self.worker_rows.pop(worker_id, None)
        for run in self.rows.runs.values():
            if run.owner in worker_ids and run.parked is None:
                run.wake_at, run.hints = now, 0
        for steps in self.rows.open_steps.values():
            for step in steps.values():
                if step.owner in worker_ids and not step.abandoned and step.state != "parked":
                    step.due_at, step.hints = now, 0

    async def lost_owners(self) -> list[str]:
        """List the owners of runs that are not registered, and whose runs nobody is about to look after."""
        owners = {
            run.owner
            for run in self.rows.runs.values()
            if run.owner is not None and run.wake_at is None and run.parked is None
        }
        return sorted(owners - self.worker_rows.keys())

    async def purge(self, namespace: str, *, ended_before: dt.datetime, limit: int) -> int:
        """Delete runs that ended long ago."""
        old = [
            key
            for key, run in sorted(self.rows.runs.items())
            if run.namespace == namespace
            and run.ended_at is not None
            and run.ended_at < ended_before
            and not self._has_children(run)
        ]
        for key in old[:limit]:
            self.rows.forget(key)
            self.snapshots.forget(key)
        return len(old[:limit])

    async def tend(self, namespace: str, *, ended_before: dt.datetime | None) -> int:  # noqa: ARG002 - as the protocol has it
        """There is nothing to do for dicts."""
        return 0

    def _has_children(self, run: RunRecord) -> bool:
        """Tell whether one of a root run's tree is there: its id begins with the root's."""
        return any(
            ref.namespace == run.namespace and ref.run_id.startswith(f"{run.run_id}:")
            for ref in self.rows.by_ref
        )

    async def close(self) -> None:
        """Let go of the users' tables."""
        if self._users_tables is not None:
            self._users_tables.close()
            self._users_tables = None

    def _time(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self._clock(), dt.UTC)

    def _is_alive(self, worker_id: str) -> bool:
        worker = self.worker_rows.get(worker_id)
        return worker is not None and worker.alive_until > self._time()


class MemoryTransaction:
    """A transactional step over the twin."""

    def __init__(self, store: MemoryStore, connection: sqlite3.Connection) -> None:
        self._store = store
        self._connection = connection
        self.committed = False

    @property
    def connection(self) -> Any:
        """The users' own tables."""
        return self._connection

    async def commit(self, append: Append) -> Appended:
        """Write *append* with what the user's statements did."""
        # One refused fact has written nothing; of several, those before it have.
        before = copy.deepcopy(self._store.rows) if len(append.facts) > 1 else self._store.rows
        (answer,) = self._store._append([append])  # noqa: SLF001 - the transaction is a part of its store
        self.committed = all(verdict is Verdict.WRITTEN for verdict in answer.verdicts)
        if not self.committed:
            self._store.rows = before
            answer.hints, answer.ended = [], []
        return answer


def _matches(run: RunRecord, which: RunFilter) -> bool:
    return (
        run.namespace == which.namespace
        and (which.workflow is None or run.workflow == which.workflow)
        and (which.status is None or run.status == which.status)
        and not (which.open_only and run.ended)
        and not (which.parked_only and run.parked is None)
    )
