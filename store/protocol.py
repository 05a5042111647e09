"""What a store can do, whichever it is.

``append`` is the only way a run changes; its rules are in ``ledger``, and every adapter passes one
suite, ``tests/conformance/store``. All deadlines use the store's clock, which each answer tells.
All methods raise ``StoreUnavailable``; reading a journal also ``Unreadable``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

import msgspec

from tidewheel.journal.events import Entry, InvokeScheduled
from tidewheel.store.admission import Admission
from tidewheel.store.append import Append, Appended, Hint
from tidewheel.store.columns import moment
from tidewheel.store.outbox import Outbox
from tidewheel.store.projections import Projections
from tidewheel.store.records import RunRecord, RunRef, StepRecord, TimerRecord, WorkerRecord
from tidewheel.store.snapshots import Snapshots

#: Takes what became of an append, or why nobody knows that.
Answered: TypeAlias = Callable[[Appended | Exception], None]


class Loaded(msgspec.Struct, kw_only=True):
    """A run as an activation needs it, all as of one moment."""

    run: RunRecord
    #: The current segment, or what follows the event that was asked for.
    entries: list[Entry]
    #: The open steps; where only what follows an event was asked for, only the inline ones.
    steps: list[StepRecord]
    timers: list[TimerRecord]
    #: The owners of steps that are believed to be alive.
    alive: frozenset[str]
    now: dt.datetime


class LoadedStep(msgspec.Struct, kw_only=True):
    """An open step as its executor needs it."""

    run: RunRecord
    step: StepRecord
    event: InvokeScheduled
    now: dt.datetime


class DueTimer(msgspec.Struct, frozen=True, kw_only=True):
    """A timer that nobody has fired, and where the workers of its run are.

    A parked run is nobody's. ``alone`` is as in ``Hint``.
    """

    run: RunRef
    path: str
    fire_at: dt.datetime
    queue: str
    alone: bool = False
    is_parked: bool = False


def due_timer(row: Sequence[Any]) -> DueTimer:
    """Return the timer that a row tells of."""
    path, fire_at, namespace, run_id, queue, alone, is_parked = row
    return DueTimer(
        run=RunRef(namespace, run_id),
        path=path,
        fire_at=moment(fire_at),
        queue=queue,
        alone=bool(alone),
        is_parked=bool(is_parked),
    )


class DueStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that somebody has to look at; ``run_queue`` is where its run's workers are."""

    run: RunRef
    run_queue: str
    step: StepRecord
    owner_is_alive: bool


class Due(msgspec.Struct, kw_only=True):
    """What was due and is now the caller's to do; if it does not, it is due again a little later."""

    now: dt.datetime
    timers: list[DueTimer] = []
    steps: list[DueStep] = []
    #: Runs whose hint was lost, or not followed.
    hints: list[Hint] = []
    #: When the next thing will be due, as far as is known.
    next_at: dt.datetime | None = None


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to list, newest first; ``before`` is the key after which the last page ended."""

    namespace: str
    workflow: str | None = None
    status: str | None = None
    open_only: bool = False
    parked_only: bool = False
    limit: int = 50
    before: bytes | None = None


class Transaction(Protocol):
    """A transaction of the user's own statements that ends with an append."""

    @property
    def connection(self) -> Any:
        """What the user's code executes its statements on."""

    async def commit(self, append: Append) -> Appended:
        """Write *append* and commit both; if any of its facts is refused, neither is written."""


class Store(Protocol):
    """Journals, and who owes them what."""

    @property
    def outbox(self) -> Outbox:
        """What the event bus is owed."""

    @property
    def snapshots(self) -> Snapshots:
        """What is kept for projectors."""

    @property
    def projections(self) -> Projections:
        """The tables of users' own projections."""

    @property
    def admission(self) -> Admission:
        """How many runs of a queue may be under way."""

    async def append(self, batch: Sequence[Append]) -> list[Appended]:
        """Write all of *batch* in one transaction; the answers are in its order.

        Raises ``CommitUnknown`` where the commit may or may not have happened.
        """

    def submit(self, request: Append, answered: Answered) -> None:
        """Write *request* in a transaction that others share, and call *answered* once, not from in here.

        It is given what ``append`` would return or raise. Appends to one run are written in the order in
        which they were submitted.
        """

    def flush(self) -> None:
        """Begin to write what was submitted: nothing that could share its transaction is about to come."""

    def transaction(self, *, is_async: bool = False) -> AbstractAsyncContextManager[Transaction]:
        """Begin a transactional step; leaving the block without a commit rolls everything back.

        *is_async*: the user's code awaits its statements, where the store has such a connection.
        """

    # Reading

    def sketched(self, sketch: bytes) -> Loaded | None:
        """Return the run that a hint carries, as of when it was given; None if it has to be loaded.

        Whoever goes on from there and finds that the run is elsewhere by now is told so by ``append``.
        """

    async def load(self, run: RunRef, *, after: int | None = None) -> Loaded | None:
        """Read a run's current segment, or only what follows event *after* if that is in it."""

    async def load_step(self, run: RunRef, path: str) -> LoadedStep | None:
        """Read an open step and what scheduled it."""

    async def find(self, run: RunRef) -> RunRecord | None:
        """Read a run's row."""

    async def journal(self, run: RunRef, *, after: int = -1) -> list[Entry] | None:
        """Read a run's whole journal, or what follows event *after*."""

    async def runs(self, which: RunFilter) -> list[RunRecord]:
        """List runs."""

    async def now(self) -> dt.datetime:
        """Read the store's clock."""

    async def changed(self, timeout_s: float) -> None:
        """Return when something may have been written, by any process, or after *timeout_s*."""

    # Looking after things

    async def claim_due(self, *, limit: int) -> Due:
        """Take what is due, at most *limit* of each kind, and put off when it is due again."""

    async def register(self, worker: WorkerRecord) -> None:
        """Announce a worker, or what it has now."""

    async def renew(self, worker_id: str, lease_s: float) -> bool:
        """Say that a worker is alive; False if it was given up, or never registered."""

    async def workers(self) -> list[WorkerRecord]:
        """List the workers that were not given up."""

    async def give_up(self, worker_ids: Sequence[str]) -> None:
        """Take these workers for dead: what they were executing is due now, as are runs that they owned."""

    async def lost_owners(self) -> list[str]:
        """List who owns runs and is not registered, as one that was given up and wrote all the same.

        Only runs count that are neither due already nor parked.
        """

    async def purge(self, namespace: str, *, ended_before: dt.datetime, limit: int) -> int:
        """Delete at most *limit* runs that ended before then, and all that is theirs; return how many.

        A run goes after its children: started again under its id, it would meet the old ones.
        """

    async def tend(self, namespace: str, *, ended_before: dt.datetime | None) -> int:
        """Do what the database itself needs from time to time, such as partitions for the coming time.

        Where that deletes runs, they are of *namespace* and ended before then; return how many.
        """

    async def close(self) -> None:
        """Let go. May be called twice."""
