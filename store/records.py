"""The rows a store keeps beside the journal, as values.

Each of them can be derived from the journals again; they are there so that nobody has to.
The run's row says who owes it a wake-up; a step's row says who executes it. They are changed
by ``ledger`` alone, under the run's lock.
"""

from __future__ import annotations

import datetime as dt
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from tidewheel.journal.events import InvokeKind
from tidewheel.journal.ids import PromiseId
from tidewheel.journal.status import WAITING_ROOM, Phase, RunState

#: A step waits to be started, is being executed, waits for its next attempt, or for an operator.
StepState: TypeAlias = Literal["scheduled", "started", "retrying", "parked"]
#: A run of a queue that has a limit waits to be admitted, or is one of those that were.
Place: TypeAlias = Literal["queued", "running"]
#: Why a run is not activated: its code does not fit, is not here, or its journal cannot be read.
ParkedAs: TypeAlias = Literal["violation", "needs_version", "unknown_workflow", "unreadable", "quarantine"]

#: The phases of a run that was not admitted yet, as its row has them.
WAITING: Final = frozenset(phase.value for phase in WAITING_ROOM)


class RunRef(NamedTuple):
    """A run as users name it; a child's id is its promise, such as ``order-42:1``."""

    namespace: str
    run_id: str

    @property
    def promise(self) -> PromiseId:
        """The run as a position in its tree."""
        run, _, path = self.run_id.partition(":")
        return PromiseId(run, path)

    def __str__(self) -> str:
        return self.run_id

    def log_fields(self) -> dict[str, str]:
        """What a log record that speaks of the run says in fields of its own."""
        return {"run_id": self.run_id, "namespace": self.namespace}


class InlineStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A step that is in its run's row, instead of one of its own: the run's owner executes it.

    ``attempt`` is 0 before it was started. It is known by its path unless it has a ``step_id``.
    """

    path: str
    function_name: str
    scheduled_seq: int
    scheduled_at: dt.datetime
    kind: InvokeKind = "function"
    attempt: int = 0
    step_id: str | None = None
    key_part: str | None = None
    logical_attempt: int = 1
    told: bool = False


class RunRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One run's row."""

    #: Sixteen bytes that sort by the time the run was started.
    key: bytes
    namespace: str
    run_id: str
    workflow: str
    version: str = ""
    digest: str = ""
    queue: str
    parent_key: bytes | None = None
    idempotency_key: str | None = None
    phase: str = Phase.NEW.value
    cancelling: bool = False
    paused: bool = False
    last_seq: int = -1
    #: Where the current segment begins, and the first position its commands may take.
    segment_seq: int = 0
    first_position: int = 0
    #: The fence: replaced by each activation that appends.
    token: bytes = b""
    #: The steps that are being executed without a queue, as far as they have no rows of their own, and by
    #: whom.
    inline: tuple[InlineStep, ...] = ()
    owner: str | None = None
    #: The delivery on which a worker took the run's inline steps: its redelivery means that the worker died.
    owner_message: str | None = None
    #: When somebody has to look after the run because nobody did, and how often that happened.
    wake_at: dt.datetime | None = None
    hints: int = 0
    deliveries: int = 0
    #: The ``run_seq`` of the latest public event, and the id of ``RunStarted``.
    prev_seq: int | None = None
    started_id: str | None = None
    #: Whether steps without a key, and with a key that reads like a path, were scheduled.
    has_unkeyed_steps: bool = False
    has_numeric_keys: bool = False
    #: Whether the current segment has promises that outsiders know by name.
    has_promises: bool = False
    #: How often a worker died while it had the run's message.
    strikes: int = 0
    parked: ParkedAs | None = None
    parked_reason: str | None = None
    #: The queues of clients that wait for the result.
    reply_to: tuple[str, ...] = ()
    created_at: dt.datetime
    updated_at: dt.datetime
    ended_at: dt.datetime | None = None
    #: What it counts as in the limit of its queue, until it ends; and before when it is not admitted.
    place: Place | None = None
    admit_at: dt.datetime | None = None

    @property
    def ref(self) -> RunRef:
        """The run as users name it."""
        return RunRef(self.namespace, self.run_id)

    @property
    def path(self) -> str:
        """The run's own path: empty for a root run."""
        return self.run_id.partition(":")[2]

    @property
    def state(self) -> RunState:
        """The run's state as the journal's table knows it, without what it waits for."""
        return RunState(Phase(self.phase), None, self.cancelling, self.paused)

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.ended_at is not None

    @property
    def takes_turns(self) -> bool:
        """Whether its code may be shown anything: it was admitted, and has not ended."""
        return self.ended_at is None and self.phase not in WAITING

    @property
    def status(self) -> str:
        """The contract's word for where the run stands."""
        return self.state.public_status


class StepRecord(msgspec.Struct, kw_only=True):
    """A step that has no result yet."""

    path: str
    kind: InvokeKind
    function_name: str
    queue: str
    dispatch: Literal["inline", "queued"]
    state: StepState = "scheduled"
    #: The latest attempt that was started; 0 before the first.
    attempt: int = 0
    scheduled_seq: int
    scheduled_at: dt.datetime
    owner: str | None = None
    #: The code gave up on it: it is not executed (again) unless the code comes back to it.
    abandoned: bool = False
    #: When the keeper has to look at it, and how often it published a hint.
    due_at: dt.datetime | None = None
    hints: int = 0
    #: Deadlines: to be started by, to be completed by; seconds between heartbeats.
    start_by: dt.datetime | None = None
    close_by: dt.datetime | None = None
    heartbeat_s: float | None = None
    #: What the latest heartbeat said, as JSON.
    beat: bytes | None = None
    #: How the public events name the step, and what was published of its logical attempt: ``StepStarted``
    #: (``told``), ``StepFailed``.
    step_id: str
    key_part: str
    logical_attempt: int = 1
    told: bool = False
    failed: bool = False
    signal_id: str | None = None


class TimerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A timer that has neither fired nor been cancelled."""

    path: str
    fire_at: dt.datetime
    #: When the keeper fires it, if whoever armed it has not.
    due_at: dt.datetime


class Passage(msgspec.Struct, frozen=True, gc=False):
    """Consecutive events of a run that were written together: one row of the journal.

    ``data`` is what ``codec`` makes of them; ``public`` is there if they publish something (``publishing``).
    """

    first_seq: int
    last_seq: int
    at: dt.datetime
    data: bytes
    public: bytes | None = None
    codec: str = "json"


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A process that executes runs, and until when it is believed to be alive."""

    worker_id: str
    #: Whose runs it executes.
    namespace: str = "default"
    host: str
    pid: int
    #: When the process began, as the system counts it: tells it from a later one with its pid.
    began: str
    queues: tuple[str, ...]
    #: ``name``, ``version`` and ``digest`` of each workflow it has.
    workflows: tuple[tuple[str, str, str], ...]
    started_at: dt.datetime
    alive_until: dt.datetime
