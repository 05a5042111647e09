"""What can be asked of the one write path, and what it answers.

*Facts* are what happened; they are written after whatever is there. *Moves* are what a run's
code asked for; they are fenced. Expected outcomes are values here, not exceptions: a duplicate,
a late result, a fence that has gone.
"""

from __future__ import annotations

import datetime as dt
import enum
from typing import Any, TypeAlias

import msgspec

from tidewheel.journal.events import Admission, Entry, Error, Event, Result
from tidewheel.store.admission import Refused
from tidewheel.store.records import ParkedAs, RunRef
from tidewheel.telemetry.context import TraceContext


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """*owner* begins this attempt of a step."""

    path: str
    attempt: int
    owner: str


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt came to a result, or to the error that is final.

    ``overdue``: the keeper says so, since nobody reported in time; who owns the step does not matter.
    """

    path: str
    attempt: int
    result: Result
    owner: str | None = None
    overdue: bool = False


class Retrying(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt failed. Without ``retry_at`` the step is parked; ``next_owner`` makes the next attempt.

    ``overdue`` is as in ``Completed``.
    """

    path: str
    attempt: int
    error: Error
    retry_at: dt.datetime | None
    owner: str | None = None
    next_owner: str | None = None
    overdue: bool = False


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """*owner* gives a step back that it has not started. No event: only the step's row changes."""

    path: str
    owner: str


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt is alive; *details* (JSON) reach the next one. Only the step's row changes: no event."""

    path: str
    attempt: int
    details: bytes | None = None


class Fired(msgspec.Struct, frozen=True, kw_only=True):
    """A timer's time has come."""

    path: str


class Signalled(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody sent a signal; *key* tells a repetition from a second signal."""

    name: str
    payload: Any = None
    key: str


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody asked the run to stop."""

    reason: str | None = None


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody resolved or rejected the promise called *name*."""

    name: str
    result: Result
    key: str


Fact: TypeAlias = Started | Completed | Retrying | Released | Beat | Fired | Signalled | Cancelled | Resolved
#: Facts that the code must be shown: their run has something to do.
WAKING = (Completed, Fired, Signalled, Cancelled, Resolved)


class ChildStart(msgspec.Struct, frozen=True, kw_only=True):
    """What a child run is started with beside its schedule; its queue is else the schedule's."""

    workflow: str
    version: str
    digest: str
    queue: str | None = None


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Begin the run, unless it is there.

    ``now`` is the time that its code is shown first, where that was done before the run is there.
    """

    workflow: str
    version: str = ""
    digest: str = ""
    queue: str
    input: list[Any]
    idempotency_key: str | None = None
    admission: Admission = "now"
    now: dt.datetime | None = None


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    """What an activation asked for, and what it was computed from.

    ``base_seq`` is the last event it had been shown before this append's own facts. Without
    events it only says that everything up to there was shown.
    """

    expected: bytes
    token: bytes
    base_seq: int
    events: list[Event]
    #: Who executes the inline steps among the events, and on which delivery.
    owner: str | None = None
    message_id: str | None = None
    children: dict[str, ChildStart] = {}
    #: Steps the code gave up on, and steps it came back to, as of this activation.
    abandoned: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()


class Park(msgspec.Struct, frozen=True, kw_only=True):
    """Do not activate the run until somebody or something changes."""

    kind: ParkedAs
    reason: str


class Unpark(msgspec.Struct, frozen=True):
    """Activate the run again."""


class Strike(msgspec.Struct, frozen=True, kw_only=True):
    """Workers died with the run's message.

    They may have died of something else, so the first time the run is only to be tried *alone*. Each
    message that died while nothing else was under way counts, and at *limit* the run is quarantined.
    """

    reason: str
    limit: int
    alone: bool = False


class Await(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the client that listens on *reply_to* when the run ends."""

    reply_to: str


class Admit(msgspec.Struct, frozen=True, kw_only=True):
    """Let a run begin that is queued, if the limit of its *queue* allows it by now."""

    queue: str


Mark: TypeAlias = Park | Unpark | Strike | Await | Admit


class Append(msgspec.Struct, frozen=True, kw_only=True):
    """One run's part of a transaction: written together, or not at all.

    A *start* with *moves* is a run that somebody has activated before it was there: they are written if it
    is not there yet, and are stale if it is. *trace* is where it is made in a trace, if traces are kept.
    """

    run: RunRef
    start: Start | None = None
    facts: tuple[Fact, ...] = ()
    moves: Moves | None = None
    mark: Mark | None = None
    trace: TraceContext | None = None


class Verdict(enum.Enum):
    """What became of a fact."""

    WRITTEN = "written"
    #: It was written before, or is true already.
    DUPLICATE = "duplicate"
    #: The attempt is not the step's current one, or the step or timer is closed.
    LATE = "late"
    #: The run has ended.
    ENDED = "ended"
    #: There is no such run, or no such promise in it.
    UNKNOWN = "unknown"
    #: The promise was resolved by somebody else.
    RESOLVED = "resolved"


class Fate(enum.Enum):
    """What became of the moves."""

    COMMITTED = "committed"
    #: This very append was committed before: its reply was lost.
    REPEATED = "repeated"
    #: Computed from what is no longer so. Load again; the facts of the append were written.
    STALE = "stale"
    ENDED = "ended"


class Hint(msgspec.Struct, kw_only=True):
    """Whom to wake after the commit: a run, or with a path the workers of a step's queue.

    ``sketch`` is the run as it was written, for whoever follows the hint at once (``Store.sketched``);
    ``times`` says how often the keeper came upon it before.
    """

    run: RunRef
    queue: str
    path: str | None = None
    attempt: int = 0
    alone: bool = False
    sketch: bytes | None = None
    times: int = 0
    trace: TraceContext | None = None


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has ended, with its last event, as far as that is at hand, and who waits for it."""

    run: RunRef
    last_seq: int
    reply_to: tuple[str, ...]
    event: Event | None = None
    #: Another run of its queue may be admitted in its place.
    frees_place: bool = False


class Appended(msgspec.Struct, kw_only=True):
    """What became of one append."""

    run: RunRef
    #: The store's clock, at the commit.
    now: dt.datetime
    verdicts: list[Verdict] = []
    fate: Fate | None = None
    #: The run was there already; ``mismatch``: with another workflow or input.
    existed: bool = False
    mismatch: bool = False
    last_seq: int = -1
    #: What others wrote between ``base_seq`` and this append.
    landed: list[Entry] = []
    hints: list[Hint] = []
    ended: list[Ended] = []
    strikes: int = 0
    #: The start was refused, and nothing was written.
    refused: Refused | None = None
    #: The run was admitted by this very append.
    admitted: bool = False
