"""What the event bus is owed, as whoever publishes it needs it.

An append leaves a row for the events it publishes, in its own transaction. Rows of a run are told in their
order: only the lowest can be claimed, and whoever has claimed it may go on with those above it. A claim is a
lease, committed; nobody holds a transaction open while publishing. A row goes when its events were taken by
the bus. Everything is at least once: a relay that dies after publishing leaves a row that is told again.

A row that is in trouble holds back its own run alone: it is due again later, or is a *dead letter*, which
waits for a person. Claims go through the runs in the order of their keys and say where to go on, so that runs
in trouble are passed by once in a round, and not looked at each time.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from tidewheel.store.columns import moment
from tidewheel.store.passages import PassageRow
from tidewheel.store.records import RunRef

#: So many rows of a run are claimed at a time, and so many runs looked at for those that can be.
ROWS_MAX: Final = 64
LOOKED_MAX: Final = 2_000
#: A backlog is counted up to this many rows.
COUNTED_MAX: Final = 10_000


class Place(NamedTuple):
    """A row: the run's key, and the first of the events that the row stands for."""

    run_key: bytes
    first_seq: int


class OwedRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The events of one append; ``size`` is how many bytes they take in the journal."""

    first_seq: int
    last_seq: int
    size: int


class Owed(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one run in a relay's hands, from its lowest on.

    ``attempts`` is how often the lowest failed, ``since`` when it was written.
    """

    run_key: bytes
    run: RunRef
    workflow: str
    attempts: int
    since: dt.datetime
    rows: tuple[OwedRow, ...]

    def place(self, row: OwedRow) -> Place:
        """Return where *row* is."""
        return Place(self.run_key, row.first_seq)


class Claimed(msgspec.Struct, kw_only=True):
    """What was claimed, and after which run the next claim goes on: empty once the last was looked at."""

    owed: list[Owed]
    after: bytes
    now: dt.datetime


class StoredPassage(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the journal, and what the public fold has to know of the run before it."""

    row: PassageRow
    public: bytes | None


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A row that could not be told, why, and after how long it is tried again; None: it is a dead letter."""

    place: Place
    error: str
    retry_after: dt.timedelta | None


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """Events that are not told until somebody says so; ``waiting`` is how many rows of the run are behind."""

    place: Place
    run: RunRef
    workflow: str
    last_seq: int
    attempts: int
    first_error: str
    last_error: str
    created_at: dt.datetime
    dead_at: dt.datetime
    waiting: int


class DeadLetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters to list, by run; ``after`` is where the last page ended."""

    namespace: str
    run_id: str | None = None
    workflow: str | None = None
    limit: int = 50
    after: Place | None = None


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """How much is owed, up to ``COUNTED_MAX`` rows, and since when."""

    rows: int
    dead: int
    oldest_at: dt.datetime | None
    now: dt.datetime


class Outbox(Protocol):
    """See the module. All methods raise ``StoreUnavailable``."""

    async def claim(self, relay: str, *, after: bytes, limit: int, lease_s: float) -> Claimed:
        """Claim rows of at most *limit* runs whose keys come after *after*, for *lease_s* seconds."""

    async def passages(self, places: Sequence[Place]) -> list[StoredPassage | None]:
        """Read rows of the journal; None for one that is not there."""

    async def renew(self, relay: str, run_keys: Sequence[bytes], lease_s: float) -> None:
        """Keep what *relay* has claimed of these runs for *lease_s* more seconds."""

    async def sent(self, places: Sequence[Place]) -> None:
        """Their events were taken by the bus: forget the rows."""

    async def release(self, relay: str, run_keys: Sequence[bytes]) -> None:
        """Give up what *relay* has claimed of these runs, for anybody to go on."""

    async def failed(self, troubles: Sequence[Trouble]) -> None:
        """Count failures of rows, and say when they are due again, if at all."""

    async def backlog(self) -> Backlog:
        """Look at how much is owed."""

    async def dead_letters(self, which: DeadLetterFilter) -> list[DeadLetter]:
        """List dead letters, those of the oldest run first."""

    async def redrive(self, places: Sequence[Place]) -> int:
        """Let dead letters be tried again, as if for the first time; return how many."""

    async def discard(self, places: Sequence[Place]) -> int:
        """Forget dead letters, and let their runs go on without them; return how many."""


def dead_letter_of(row: Sequence[Any]) -> DeadLetter:
    """Return the dead letter that a row tells of."""
    run_key, first_seq, namespace, run_id, workflow, last_seq, attempts, *errors, made, died, waiting = row
    first_error, last_error = errors
    return DeadLetter(
        place=Place(run_key, first_seq),
        run=RunRef(namespace, run_id),
        workflow=workflow,
        last_seq=last_seq,
        attempts=attempts,
        first_error=first_error,
        last_error=last_error,
        created_at=moment(made),
        dead_at=moment(died),
        waiting=waiting,
    )
