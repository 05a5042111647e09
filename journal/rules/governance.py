"""GV: what operators and policies decide holds: admission, pause, retries, signals.

A pause and a signal's decision outlive a segment, so their rules are run-wide. A
segment without ``ExecutionStarted`` has no known admission: S-2 reports it, and the
rules of admission leave it alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidewheel.journal.events import (
    Entry,
    ExecutionStarted,
    InvokeCompleted,
    InvokeRetrying,
    InvokeScheduled,
    InvokeStarted,
    RunAdmitted,
    RunApproved,
    RunPaused,
    RunResumed,
    SignalAccepted,
    SignalReceived,
    SignalRejected,
    StepRetryRequested,
    StepSkipped,
    TimerScheduled,
)
from tidewheel.journal.jsonform import shown
from tidewheel.journal.rules.registry import Found, rule
from tidewheel.journal.status import MOVES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: What only the code's activation writes, so nothing of it precedes the admission.
ACTIVATION = (*MOVES, SignalReceived)


@rule("GV-1", ExecutionStarted, RunAdmitted)
def admitted_from_waiting(entries: Sequence[Entry]) -> Iterator[Found]:
    """RunAdmitted comes once, and only to a run that waits for its admission."""
    waiting: bool | None = None
    for entry in entries:
        match entry.event:
            case ExecutionStarted(admission=admission):
                waiting = admission != "now"
            case RunAdmitted():
                if waiting is False:
                    yield entry, "RunAdmitted, but the run is not pending or approved"
                waiting = waiting and False


@rule("GV-2", ExecutionStarted, RunAdmitted, RunApproved)
def approved_from_pending(entries: Sequence[Entry]) -> Iterator[Found]:
    """RunApproved comes once, and only to a pending run that was started with admission "approval"."""
    admission: str | None = None
    passed = ""
    for entry in entries:
        match entry.event:
            case ExecutionStarted():
                admission, passed = entry.event.admission, ""
            case RunAdmitted():
                passed = "admitted"
            case RunApproved():
                if admission is not None and admission != "approval":
                    yield entry, f'RunApproved, but the run was started with admission "{admission}"'
                elif admission is not None and passed:
                    yield entry, f"RunApproved, but the run was already {passed}"
                passed = passed or "approved"


@rule("GV-3", RunPaused, RunResumed, run_wide=True)
def pauses_alternate(entries: Sequence[Entry]) -> Iterator[Found]:
    """RunPaused comes only to a run that is not paused, RunResumed only to one that is."""
    paused = False
    for entry in entries:
        match entry.event:
            case RunPaused():
                if paused:
                    yield entry, "RunPaused, but the run is paused already"
                paused = True
            case RunResumed():
                if not paused:
                    yield entry, "RunResumed, but the run is not paused"
                paused = False


@rule("GV-4", InvokeStarted, InvokeRetrying, InvokeCompleted, StepSkipped, StepRetryRequested)
def retry_requested_while_parked(entries: Sequence[Entry]) -> Iterator[Found]:
    """StepRetryRequested(pid) requires that pid is parked: its last InvokeRetrying has no time."""
    parked: set[str] = set()
    for entry in entries:
        match entry.event:
            case InvokeRetrying(promise_id=pid, retry_at=None):
                parked.add(pid)
            case StepRetryRequested(promise_id=pid) if pid not in parked:
                yield entry, f"StepRetryRequested for {pid}, which is not parked"
            case (
                InvokeStarted(promise_id=pid)
                | InvokeRetrying(promise_id=pid)
                | InvokeCompleted(promise_id=pid)
                | StepSkipped(promise_id=pid)
                | StepRetryRequested(promise_id=pid)
            ):
                parked.discard(pid)


@rule("GV-5", ExecutionStarted, RunAdmitted, *ACTIVATION)
def no_moves_before_admission(entries: Sequence[Entry]) -> Iterator[Found]:
    """The code makes no move before the run is admitted."""
    waiting = False
    for entry in entries:
        match entry.event:
            case ExecutionStarted(admission=admission):
                waiting = admission != "now"
            case RunAdmitted():
                waiting = False
            case event if waiting and isinstance(event, ACTIVATION):
                yield entry, f"{type(event).__name__} before the run was admitted"


@rule("GV-6", RunPaused, RunResumed, InvokeScheduled, TimerScheduled, run_wide=True)
def nothing_scheduled_while_paused(entries: Sequence[Entry]) -> Iterator[Found]:
    """No InvokeScheduled or TimerScheduled while the run is paused."""
    paused_at: int | None = None
    for entry in entries:
        match entry.event:
            case RunPaused():
                paused_at = entry.run_seq if paused_at is None else paused_at
            case RunResumed():
                paused_at = None
            case InvokeScheduled(promise_id=pid) | TimerScheduled(promise_id=pid):
                if paused_at is not None:
                    name = type(entry.event).__name__
                    yield entry, f"{name} for {pid}, but the run is paused since {paused_at}"


@rule("GV-7", SignalAccepted, SignalRejected, run_wide=True)
def signal_decided_once(entries: Sequence[Entry]) -> Iterator[Found]:
    """A signal id is accepted or rejected once."""
    decided: dict[str, int] = {}
    for entry in entries:
        match entry.event:
            case SignalAccepted(signal_id=signal) | SignalRejected(signal_id=signal):
                if signal in decided:
                    yield entry, f"signal {shown(signal)} was already decided at {decided[signal]}"
                decided.setdefault(signal, entry.run_seq)
