"""A run as one value: the contract's snapshot, reduced from public events.

Rule 1: an event at or below ``last_event_seq`` changes nothing, so reading again is safe.
Rule 2: an event type the tables do not have only moves ``last_event_seq`` on.
Rule 3: a snapshot is never changed; whoever holds one may pass it to any thread.
Rule 4: a run has the status that ``status`` folds from its journal. That is the contract's
table, but for a pause before the start: it covers the run's status and does not replace it.

A snapshot is a plain value with a tuple of steps, so that it compares, travels and encodes
as what it is. Putting one event into it copies that tuple, as writing it to a store would.
``SnapshotBuilder`` keeps the steps by id instead, so that many events cost O(1) each and one
copy at the end; ``reduce`` is a builder for a single event. Finding and fetching events that
are missing is a projector's work; here is only how a gap is told (``has_gap``).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from tidewheel.journal.events import Entry, Json
from tidewheel.journal.public import PublicEvent, PublicFold, publish

RunStatus: TypeAlias = Literal["PENDING", "APPROVED", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED"]
StepStatus: TypeAlias = Literal["PENDING", "RUNNING", "SUCCESS", "FAILED", "SKIPPED"]
#: The contract's reference to something stored elsewhere; no event carries one yet.
ArtifactRef: TypeAlias = dict[str, Json]

ENDED: Final[frozenset[RunStatus]] = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
#: The watermark of a run that has published nothing.
NO_EVENT: Final = -1


class Failure(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a step or a run failed, in the contract's words; ``code`` is the error's type."""

    code: str
    message: str = ""
    retryable: bool = False


class EngineRunRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What executes the run: the workflow and the version it started with."""

    workflow: str
    version: str = ""


class StepSnapshot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a step stands in its latest logical attempt; ``reason`` is why it was skipped."""

    step_id: str
    name: str | None = None
    status: StepStatus = "PENDING"
    logical_attempt_id: str = "1"
    engine_attempt_id: str | None = None
    started_at: dt.datetime | None = None
    completed_at: dt.datetime | None = None
    artifacts: tuple[ArtifactRef, ...] = ()
    error: Failure | None = None
    reason: str | None = None


class RunSnapshot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a run stands after the public event ``last_event_seq``; -1 is before the first.

    ``failed_steps`` counts the steps that are failed now. ``paused_from`` is the status that a
    pause covers and its end brings back. ``stale`` is set by a projector that misses events.
    """

    run_id: str
    workflow: str = ""
    status: RunStatus = "PENDING"
    last_event_seq: int = NO_EVENT
    steps: tuple[StepSnapshot, ...] = ()
    failed_steps: int = 0
    artifacts: tuple[ArtifactRef, ...] = ()
    started_at: dt.datetime | None = None
    completed_at: dt.datetime | None = None
    total_duration_ms: int | None = None
    engine_run_ref: EngineRunRef | None = None
    root_cause: Failure | None = None
    paused_from: RunStatus | None = None
    stale: bool = False


class SnapshotBuilder:
    """Takes public events in the order of ``run_seq``, each in O(1); ``freeze`` gives the snapshot."""

    def __init__(self, snapshot: RunSnapshot) -> None:
        self._run = replace(snapshot, steps=())
        self._steps = {step.step_id: step for step in snapshot.steps}

    def apply(self, event: PublicEvent) -> None:
        """Take in *event*, unless it was taken in before."""
        assert event.run_id == self._run.run_id, "an event of another run"
        if event.run_seq <= self._run.last_event_seq:
            return
        run = replace(self._run, last_event_seq=event.run_seq)
        if event.event_type in RUN_EVENTS:
            run = RUN_EVENTS[event.event_type](run, event)
            run = replace(run, workflow=event.workflow)
        elif event.event_type in STEP_EVENTS and event.step_id is not None:
            before = self._steps.get(event.step_id) or StepSnapshot(step_id=event.step_id)
            after = STEP_EVENTS[event.event_type](_addressed(before, event), event)
            self._steps[event.step_id] = after
            change = (after.status == "FAILED") - (before.status == "FAILED")
            run = replace(run, failed_steps=run.failed_steps + change)
        self._run = run

    def freeze(self) -> RunSnapshot:
        """Return the snapshot so far; the builder may go on."""
        return replace(self._run, steps=tuple(self._steps.values()))


def empty(run_id: str) -> RunSnapshot:
    """Return the snapshot of a run that has published nothing."""
    return RunSnapshot(run_id=run_id)


def reduce(snapshot: RunSnapshot, event: PublicEvent) -> RunSnapshot:
    """Return the snapshot after *event*; *snapshot* itself where *event* was already in it."""
    return snapshot if event.run_seq <= snapshot.last_event_seq else reduce_all(snapshot, (event,))


def reduce_all(snapshot: RunSnapshot, events: Iterable[PublicEvent]) -> RunSnapshot:
    """Return the snapshot after *events*, which come in the order of ``run_seq``."""
    builder = SnapshotBuilder(snapshot)
    for event in events:
        builder.apply(event)
    return builder.freeze()


def snapshot_of(entries: Iterable[Entry], run_id: str) -> RunSnapshot:
    """Return the snapshot of the run whose whole journal is *entries*."""
    fold, builder = PublicFold.start(run_id), SnapshotBuilder(empty(run_id))
    for entry in entries:
        fold, event = publish(fold, entry)
        if event is not None:
            builder.apply(event)
    return builder.freeze()


def has_gap(last_event_seq: int, prev_seq: int | None) -> bool:
    """Tell whether events are missing between the watermark and an event with this *prev_seq*."""
    return prev_seq is not None and prev_seq > last_event_seq


def to_json(snapshot: RunSnapshot) -> dict[str, Any]:
    """Return *snapshot* as plain dicts and lists with the contract's names."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(snapshot))  # tuples become lists
    return plain


def from_json(data: dict[str, Any]) -> RunSnapshot:
    """Read what ``to_json`` gave; fields it does not know are left out."""
    return msgspec.convert(data, RunSnapshot)


def _approved(run: RunSnapshot, _: PublicEvent) -> RunSnapshot:
    return _moved(run, "APPROVED")


def _started(run: RunSnapshot, event: PublicEvent) -> RunSnapshot:
    """Record what executes the run, and since when."""
    ref = EngineRunRef(workflow=event.workflow, version=event.plan_version)
    return replace(_moved(run, "RUNNING"), engine_run_ref=ref, started_at=event.emitted_at)


def _paused(run: RunSnapshot, _: PublicEvent) -> RunSnapshot:
    if run.status in ENDED or run.status == "PAUSED":
        return run
    return replace(run, status="PAUSED", paused_from=run.status)


def _resumed(run: RunSnapshot, _: PublicEvent) -> RunSnapshot:
    return run if run.paused_from is None else replace(run, status=run.paused_from, paused_from=None)


def _completed(run: RunSnapshot, event: PublicEvent) -> RunSnapshot:
    return _ended(run, event, "COMPLETED")


def _failed(run: RunSnapshot, event: PublicEvent) -> RunSnapshot:
    cause = run.root_cause if run.status in ENDED else _failure(event)
    return replace(_ended(run, event, "FAILED"), root_cause=cause)


def _cancelled(run: RunSnapshot, event: PublicEvent) -> RunSnapshot:
    return _ended(run, event, "CANCELLED")


def _moved(run: RunSnapshot, status: RunStatus) -> RunSnapshot:
    """Return *run* with *status*, or with it under the pause that covers it."""
    if run.status in ENDED:
        return run
    return replace(run, paused_from=status) if run.status == "PAUSED" else replace(run, status=status)


def _ended(run: RunSnapshot, event: PublicEvent, status: RunStatus) -> RunSnapshot:
    """Return *run* ended, with how long it took where both times are known."""
    if run.status in ENDED:
        return run
    taken_ms = None
    if run.started_at is not None and event.emitted_at is not None:
        taken = max(event.emitted_at - run.started_at, dt.timedelta())  # clocks of two machines may differ
        taken_ms = taken // dt.timedelta(milliseconds=1)
    return replace(
        run, status=status, completed_at=event.emitted_at, total_duration_ms=taken_ms, paused_from=None
    )


def _addressed(step: StepSnapshot, event: PublicEvent) -> StepSnapshot:
    """Return *step* in the attempt that *event* is about; an attempt begins with nothing of the last."""
    if event.logical_attempt_id != step.logical_attempt_id:
        step = StepSnapshot(step_id=step.step_id, logical_attempt_id=event.logical_attempt_id)
    engine_attempt = event.engine_attempt_id or step.engine_attempt_id
    return replace(step, name=event.step_name, engine_attempt_id=engine_attempt)


def _step_started(step: StepSnapshot, event: PublicEvent) -> StepSnapshot:
    at = event.emitted_at
    return replace(step, status="RUNNING", started_at=at, completed_at=None, error=None, reason=None)


def _step_completed(step: StepSnapshot, event: PublicEvent) -> StepSnapshot:
    return replace(step, status="SUCCESS", completed_at=event.emitted_at, error=None)


def _step_failed(step: StepSnapshot, event: PublicEvent) -> StepSnapshot:
    return replace(step, status="FAILED", completed_at=event.emitted_at, error=_failure(event))


def _step_skipped(step: StepSnapshot, event: PublicEvent) -> StepSnapshot:
    reason = event.data["reason"]
    return replace(step, status="SKIPPED", completed_at=event.emitted_at, error=None, reason=reason)


def _failure(event: PublicEvent) -> Failure:
    error = event.data["error"]
    return Failure(
        code=error["type"], message=error.get("message", ""), retryable=error.get("retryable", False)
    )


#: What an event about the run does to it. Signals are decisions on record: they change no status.
RUN_EVENTS: Final[dict[str, Callable[[RunSnapshot, PublicEvent], RunSnapshot]]] = {
    "RunApproved": _approved,
    "RunStarted": _started,
    "RunPaused": _paused,
    "RunResumed": _resumed,
    "RunCompleted": _completed,
    "RunFailed": _failed,
    "RunCancelled": _cancelled,
}
#: What an event about a step does to it.
STEP_EVENTS: Final[dict[str, Callable[[StepSnapshot, PublicEvent], StepSnapshot]]] = {
    "StepStarted": _step_started,
    "StepCompleted": _step_completed,
    "StepFailed": _step_failed,
    "StepSkipped": _step_skipped,
}
