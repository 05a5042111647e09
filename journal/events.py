"""The facts and moves a run's journal is made of.

Events are named in the past tense, are frozen, and are never edited: a change
of meaning is a new event class and an upcaster in ``codec``. Payload fields
(``input``, ``result``, ``payload``, ``value``) hold JSON values: what is shown is
what was stored. Nothing here reads a clock, a socket or a random source.

A field with a default may be missing in a journal that is read; a field that a
rule needs has none. ``UNSET`` fields are left out when written.
"""

from __future__ import annotations

import datetime as dt
import enum
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tidewheel.journal.ids import PATH_PATTERN
from tidewheel.journal.retry import RetryPolicy

Json: TypeAlias = Any
Path = Annotated[str, Meta(pattern=rf"\A{PATH_PATTERN}\Z")]
#: What ``ExecutionResumed.applied`` lists: a promise's path, or this word.
CANCEL = "cancel"
Applied = Annotated[str, Meta(pattern=rf"\A(?:{PATH_PATTERN}|cancel)\Z")]
#: What a store's integer holds; a larger number cannot even be printed without a limit.
NUMBER_MAX = 2**63 - 1
Count = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
Ordinal = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
#: A moment in time; without an offset it would mean another one on another machine.
Moment = Annotated[dt.datetime, Meta(tz=True)]
Admission = Literal["now", "queued", "approval"]
AwaitKind = Literal["single", "any", "all", "signal"]
InvokeKind = Literal["function", "workflow", "operation", "http"]


class Category(enum.Enum):
    """Why an event is recorded; each category keeps one formal property."""

    LIFECYCLE = "Lifecycle"
    SIDE_EFFECT = "Side effects"
    NONDETERMINISM = "Nondeterminism"
    CONTROL_FLOW = "Control flow"
    CONCURRENCY = "Concurrency"
    STATE = "State"
    GOVERNANCE = "Governance"
    DECIDER = "Deciders"


class Error(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Why something failed, in the one shape every error has in JSON."""

    type: str
    message: str = ""
    retryable: bool = False
    attempts: int | UnsetType = UNSET
    details: Json | UnsetType = UNSET


class Result(msgspec.Struct, frozen=True, gc=False):
    """What a promise came to: ``{"ok": value}`` or ``{"error": E}``."""

    ok: Json | UnsetType = UNSET
    error: Error | UnsetType = UNSET

    def __post_init__(self) -> None:
        if (self.ok is UNSET) == (self.error is UNSET):
            raise ValueError('a result has either "ok" or "error"')


#: A result that says no more than that it is there.
NOTHING = Result(ok=None)


class SignalWait(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An open wait for a signal: it has no event of its own, so each suspension lists it."""

    promise_id: Path
    signal_name: str
    n: Ordinal | UnsetType = UNSET


class InvokeLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The deadlines of one step in seconds, and what happens once its attempts are spent."""

    timeout: float | None = None
    schedule_to_start: float | None = None
    schedule_to_close: float | None = None
    heartbeat: float | None = None
    on_exhausted: Literal["raise", "park"] = "raise"


class _Event(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag=True, tag_field="type"):
    """The base of all events. Do not subclass outside this module.

    Where events of several classes are stored together each says its class, as ``type`` (``codec``).
    """

    # JSON has no cycles, so neither has an event: the garbage collector need not look (``gc=False``).

    category: ClassVar[Category]


# Lifecycle: a run starts once and ends once.


class ExecutionStarted(_Event, frozen=True, kw_only=True):
    """A run, or its next segment after continue-as-new, begins with this input.

    ``traceparent`` and ``tracestate`` are the trace that it was started in, if whoever did so has traces.
    """

    category: ClassVar[Category] = Category.LIFECYCLE
    component_digest: str = ""
    input: list[Json] = []
    parent_id: str | None = None
    idempotency_key: str | None = None
    workflow: str = ""
    version: str = ""
    now: Moment | None = None
    admission: Admission = "now"
    run_id: str | UnsetType = UNSET
    state: dict[str, Json] | UnsetType = UNSET
    traceparent: str | UnsetType = UNSET
    tracestate: str | UnsetType = UNSET


class ExecutionCompleted(_Event, frozen=True, kw_only=True):
    """The code returned. Terminal."""

    category: ClassVar[Category] = Category.LIFECYCLE
    result: Result = Result(ok=None)


class ExecutionFailed(_Event, frozen=True, kw_only=True):
    """The code raised, or broke determinism. Terminal."""

    category: ClassVar[Category] = Category.LIFECYCLE
    error: Error = Error(type="Unknown")


class CancelRequested(_Event, frozen=True, kw_only=True):
    """Somebody outside asked the run to stop; the code sees it once and may clean up."""

    category: ClassVar[Category] = Category.LIFECYCLE
    reason: str | None = None


class ExecutionCancelled(_Event, frozen=True, kw_only=True):
    """The code let the cancellation through. Terminal."""

    category: ClassVar[Category] = Category.LIFECYCLE
    reason: str | None = None


class ExecutionContinued(_Event, frozen=True, kw_only=True):
    """The segment closes; the next one starts with ``input`` and goes on at ``next_position``."""

    category: ClassVar[Category] = Category.LIFECYCLE
    input: list[Json] = []
    next_position: Ordinal = 0


# Side effects: scheduled (the intent), started (in flight), completed (the cached result).


class InvokeScheduled(_Event, frozen=True, kw_only=True):
    """The code asked for a task, operation or child run. It may start once this is committed."""

    category: ClassVar[Category] = Category.SIDE_EFFECT
    promise_id: Path
    kind: InvokeKind = "function"
    function_name: str = ""
    input: list[Json] = []
    retry_policy: RetryPolicy | None = None
    n: Ordinal | UnsetType = UNSET
    key: str | UnsetType = UNSET
    dispatch: Literal["inline", "queued"] = "inline"
    logical_attempt: Count = 1
    queue: str | UnsetType = UNSET
    limits: InvokeLimits | UnsetType = UNSET


class InvokeStarted(_Event, frozen=True, kw_only=True):
    """One physical execution of the step began."""

    category: ClassVar[Category] = Category.SIDE_EFFECT
    promise_id: Path
    attempt: Count


class InvokeCompleted(_Event, frozen=True, kw_only=True):
    """The step's result or final error, kept for every replay."""

    category: ClassVar[Category] = Category.SIDE_EFFECT
    promise_id: Path
    result: Result
    attempt: Count


class InvokeRetrying(_Event, frozen=True, kw_only=True):
    """An attempt failed; ``retry_at`` is null where the step is parked for an operator."""

    category: ClassVar[Category] = Category.SIDE_EFFECT
    promise_id: Path
    failed_attempt: Count
    error: Error = Error(type="Unknown")
    retry_at: Moment | None = None


# Nondeterminism: values captured where the code asked for them.


class RandomGenerated(_Event, frozen=True, kw_only=True):
    """``ctx.random()`` or ``ctx.uuid()`` gave this value."""

    category: ClassVar[Category] = Category.NONDETERMINISM
    promise_id: Path
    value: Json = None
    kind: Literal["random", "uuid"] | UnsetType = UNSET


class TimeRecorded(_Event, frozen=True, kw_only=True):
    """``ctx.now()`` gave this time."""

    category: ClassVar[Category] = Category.NONDETERMINISM
    promise_id: Path
    time: Moment | None = None


# Control flow: what the code waits for and what it was shown.


class TimerScheduled(_Event, frozen=True, kw_only=True):
    """A sleep or timeout began."""

    category: ClassVar[Category] = Category.CONTROL_FLOW
    promise_id: Path
    duration: float = 0.0
    fire_at: Moment | None = None


class TimerFired(_Event, frozen=True, kw_only=True):
    """The timer's time has come."""

    category: ClassVar[Category] = Category.CONTROL_FLOW
    promise_id: Path


class SignalDelivered(_Event, frozen=True, kw_only=True):
    """A signal arrived and is buffered until the code takes it."""

    category: ClassVar[Category] = Category.CONTROL_FLOW
    signal_name: str
    payload: Json = None
    delivery_id: Ordinal


class SignalReceived(_Event, frozen=True, kw_only=True):
    """The oldest unconsumed delivery went to the oldest waiter of that name."""

    category: ClassVar[Category] = Category.CONTROL_FLOW
    promise_id: Path
    signal_name: str
    payload: Json = None
    delivery_id: Ordinal
    n: Ordinal | UnsetType = UNSET


class ExecutionAwaiting(_Event, frozen=True, kw_only=True):
    """Nothing in the code can move until something it waits on arrives.

    A wait on very many promises lists the first of them and says ``truncated``. In a run that was started by
    name, which does not say which code that is, the first wait does: ``version`` and ``component_digest`` are
    those of the code that came this far.
    """

    category: ClassVar[Category] = Category.CONTROL_FLOW
    waiting_on: list[Path]
    kind: AwaitKind
    signal_name: str | UnsetType = UNSET
    signal_promise_id: Path | UnsetType = UNSET
    signals: list[SignalWait] = []
    truncated: bool | UnsetType = UNSET
    version: str | UnsetType = UNSET
    component_digest: str | UnsetType = UNSET


class ExecutionResumed(_Event, frozen=True, kw_only=True):
    """The facts in ``applied`` were shown to the code, one at a time, in this order."""

    category: ClassVar[Category] = Category.CONTROL_FLOW
    applied: list[Applied] | UnsetType = UNSET
    now: Moment | None = None


# Concurrency: results of a set in the order the code consumed them.


class JoinSetCreated(_Event, frozen=True, kw_only=True):
    """A join set was opened; it takes a position of its own."""

    category: ClassVar[Category] = Category.CONCURRENCY
    join_set_id: Path


class JoinSetSubmitted(_Event, frozen=True, kw_only=True):
    """An invoke became a member of the set."""

    category: ClassVar[Category] = Category.CONCURRENCY
    join_set_id: Path
    promise_id: Path


class JoinSetAwaited(_Event, frozen=True, kw_only=True):
    """``next()`` handed this member's result to the code."""

    category: ClassVar[Category] = Category.CONCURRENCY
    join_set_id: Path
    promise_id: Path
    result: Result | None = None


# State: what the run remembers, and promises resolved from outside.


class StateSet(_Event, frozen=True, kw_only=True):
    """``ctx.state[key] = value``."""

    category: ClassVar[Category] = Category.STATE
    key: str
    value: Json = None


class StateCleared(_Event, frozen=True, kw_only=True):
    """``del ctx.state[key]``."""

    category: ClassVar[Category] = Category.STATE
    key: str


class PromiseCreated(_Event, frozen=True, kw_only=True):
    """The code waits for somebody outside to resolve the promise of this name."""

    category: ClassVar[Category] = Category.STATE
    promise_id: Path
    name: str = ""


class PromiseResolved(_Event, frozen=True, kw_only=True):
    """Somebody outside resolved or rejected the promise."""

    category: ClassVar[Category] = Category.STATE
    promise_id: Path
    result: Result


class TimerCancelled(_Event, frozen=True, kw_only=True):
    """The code no longer waits for the timer."""

    category: ClassVar[Category] = Category.STATE
    promise_id: Path


# Governance: what operators and policies decided.


class RunAdmitted(_Event, frozen=True, kw_only=True):
    """A queued or approved run may start its code."""

    category: ClassVar[Category] = Category.GOVERNANCE


class RunApproved(_Event, frozen=True, kw_only=True):
    """An approval that the run waited for was given."""

    category: ClassVar[Category] = Category.GOVERNANCE
    signal_id: str | UnsetType = UNSET


class RunPaused(_Event, frozen=True, kw_only=True):
    """Nothing new is scheduled until the run is resumed; facts are still journaled."""

    category: ClassVar[Category] = Category.GOVERNANCE
    signal_id: str | UnsetType = UNSET


class RunResumed(_Event, frozen=True, kw_only=True):
    """The pause is over."""

    category: ClassVar[Category] = Category.GOVERNANCE
    signal_id: str | UnsetType = UNSET


class StepSkipped(_Event, frozen=True, kw_only=True):
    """An operator gave the step a result in place of its own: a completion."""

    category: ClassVar[Category] = Category.GOVERNANCE
    promise_id: Path
    result: Result
    reason: str | None = None
    signal_id: str | UnsetType = UNSET


class StepRetryRequested(_Event, frozen=True, kw_only=True):
    """A parked step is tried again as a new logical attempt."""

    category: ClassVar[Category] = Category.GOVERNANCE
    promise_id: Path
    logical_attempt: Count | UnsetType = UNSET
    signal_id: str | UnsetType = UNSET


class SignalAccepted(_Event, frozen=True, kw_only=True):
    """A signal was allowed; by itself this changes no status."""

    category: ClassVar[Category] = Category.GOVERNANCE
    signal_id: str
    signal_name: str = ""
    principal: str | UnsetType = UNSET


class SignalRejected(_Event, frozen=True, kw_only=True):
    """A signal was refused, and why."""

    category: ClassVar[Category] = Category.GOVERNANCE
    signal_id: str
    signal_name: str = ""
    reason: str | None = None
    principal: str | UnsetType = UNSET


# Deciders.


class Recorded(_Event, frozen=True, kw_only=True):
    """An event of a decider's own."""

    category: ClassVar[Category] = Category.DECIDER
    name: str
    version: Count = 1
    data: Json = None


Event: TypeAlias = (
    ExecutionStarted | ExecutionCompleted | ExecutionFailed | CancelRequested | ExecutionCancelled
    | ExecutionContinued | InvokeScheduled | InvokeStarted | InvokeCompleted | InvokeRetrying
    | RandomGenerated | TimeRecorded | TimerScheduled | TimerFired | SignalDelivered
    | SignalReceived | ExecutionAwaiting | ExecutionResumed | JoinSetCreated | JoinSetSubmitted
    | JoinSetAwaited | StateSet | StateCleared | PromiseCreated | PromiseResolved
    | TimerCancelled | RunAdmitted | RunApproved | RunPaused | RunResumed | StepSkipped
    | StepRetryRequested | SignalAccepted | SignalRejected | Recorded
)  # fmt: skip

#: Every event class by its name, in the order of the categories above.
EVENT_TYPES: dict[str, type[Event]] = {cls.__name__: cls for cls in Event.__args__}
TERMINAL = (ExecutionCompleted, ExecutionFailed, ExecutionCancelled)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One row of a journal: an event, its place, and when it was written (for people only)."""

    run_seq: int
    at: Moment | None
    event: Event
