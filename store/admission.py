"""How many runs of a queue may be under way, and what becomes of more.

A queue has a limit if an operator gave it one: so many runs that were admitted and have not ended
(``max_running``), so many that wait to be (``max_pending``), and what to do with a start beyond the first:

* ``reject``: it is refused, and nothing is written;
* ``queue``: the run is stored and waits, the oldest first, until one that runs has ended;
* ``delay``: as ``queue``, and it is not admitted before a time that is the later, the more are over.

Whatever the policy, no more than ``max_running`` are admitted at a time. A child run is not counted: its
parent holds a place while it waits for it, and the two would wait for each other.

The decision is a pure function over what the store counts while it holds the lock of the limit
(``Rows.load``). A queue without a limit has neither a row nor a lock, and nothing of it is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from tidewheel.store.records import Place, RunRef

Overload: TypeAlias = Literal["reject", "queue", "delay"]
OVERLOADS: Final[tuple[Overload, ...]] = ("reject", "queue", "delay")

#: How many may wait, and for how long whoever is refused should, where the operator says nothing.
MAX_PENDING: Final = 10_000
PAUSE_S: Final = 5.0
#: Nobody is told to wait longer than this, nor delayed for longer.
PAUSE_MAX_S: Final = 3_600.0


class QueueLimit(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator said of a queue. ``pause_s`` is the measure of waiting: see ``decide``."""

    namespace: str
    queue: str
    max_running: int
    max_pending: int = MAX_PENDING
    overload: Overload = "queue"
    pause_s: float = PAUSE_S


class QueueLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A limit, and how many runs count in it."""

    limit: QueueLimit
    running: int
    pending: int

    @property
    def is_full(self) -> bool:
        """Whether no queued run may be admitted."""
        return self.running >= self.limit.max_running


def load_from(row: Sequence[Any]) -> QueueLoad:
    """Return the load that a row tells of: the columns of the limit, then the two counts."""
    namespace, queue, max_running, max_pending, overload, pause_s, running, pending = row
    limit = QueueLimit(
        namespace=namespace,
        queue=queue,
        max_running=max_running,
        max_pending=max_pending,
        overload=overload,
        pause_s=pause_s,
    )
    return QueueLoad(limit=limit, running=running, pending=pending)


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    """The run is stored, with this place; one that is queued not before so many seconds."""

    place: Place | None = None
    after_s: float = 0.0


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The run is not stored: its queue takes no more. It may be asked for again after so many seconds."""

    queue: str
    reason: str
    retry_after_s: float

    @property
    def told(self) -> str:
        """What whoever asked is told."""
        return f"{self.reason}; try again in {self.retry_after_s:g} s"


#: The grant of a run whose queue has no limit.
FREE: Final = Granted()
_RUNNING: Final = Granted(place="running")


def decide(load: QueueLoad) -> Granted | Refused:
    """Say what becomes of one more run.

    It may begin if there is room for it and for all that were queued before. Whoever is refused waits for
    ``pause_s``, and as long again for each ``max_running`` that are queued; a delay is ``pause_s`` for each
    ``max_running`` that are over.
    """
    limit = load.limit
    over = load.running + load.pending - limit.max_running + 1
    if over <= 0:
        return _RUNNING
    at_a_time = max(limit.max_running, 1)
    if limit.overload == "reject" or load.pending >= limit.max_pending:
        retry_after_s = min(limit.pause_s * (1 + load.pending / at_a_time), PAUSE_MAX_S)
        return Refused(queue=limit.queue, reason=_reason(load), retry_after_s=retry_after_s)
    after_s = min(limit.pause_s * over / at_a_time, PAUSE_MAX_S) if limit.overload == "delay" else 0.0
    return Granted(place="queued", after_s=after_s)


def _reason(load: QueueLoad) -> str:
    limit = load.limit
    reason = f"queue {limit.queue!r} takes no more runs: {load.running} of {limit.max_running} are under way"
    if limit.overload != "reject" or load.pending:
        reason += f", {load.pending} of {limit.max_pending} are queued"
    return reason


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A queued run that may be admitted, as far as can be seen without a lock."""

    run: RunRef
    queue: str


class Admission(Protocol):
    """The limits of a store's queues, and the runs that wait in them."""

    async def put(self, limit: QueueLimit) -> None:
        """Set the limit of a queue, new or changed; its open runs count from then on."""

    async def remove(self, namespace: str, queue: str) -> bool:
        """Let a queue be without a limit: what is queued is admitted. False if it had none."""

    async def loads(self, namespace: str) -> Sequence[QueueLoad]:
        """List the limits of a namespace, by queue, and how many runs count in each."""

    async def waiting(self, *, batch_max: int) -> Sequence[Waiting]:
        """List queued runs that may be admitted, of each queue the oldest and as many as it has room for."""
