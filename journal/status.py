"""A run's status: one table, and a fold over the journal that reads it.

Rules of this module:

1. Everything that decides what a status is lives here. Nobody else compares
   event classes to find out whether a run is blocked or over.
2. ``TRANSITIONS`` is the whole machine. A missing key *is* the error: there is
   no other list of what may happen when.
3. An event that the table does not have changes nothing. The fold never raises:
   a journal is shown as far as it makes sense, and ``rules`` says what is wrong.
4. The status is never stored as a truth of its own; it can always be folded again.

How it works. A run is in one *phase*. It starts ``NEW``, and its first event opens
a segment: straight into ``RUNNING``, or into ``PENDING`` where it must be admitted
first. ``ExecutionAwaiting`` blocks it, ``ExecutionResumed`` lets it run, one terminal
event ends it, and ``ExecutionContinued`` closes the segment until the next
``ExecutionStarted`` opens another. Events are of three sorts. A few change the
phase (``CHANGES``). *Moves* are made by the code, so only a running run has them.
*Facts* arrive from outside whenever they like, as long as the run is open.

Two things do not fit in a phase, because they hold next to it: a run may be
*cancelling* while it blocks and resumes to clean up, and it may be *paused*
wherever it stands. They are flags of ``RunState``, with a table of their own
(``FLAGS``). Only a terminal event or a new segment ends *cancelling*.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidewheel.journal import events as ev

if TYPE_CHECKING:
    from collections.abc import Iterable


class Phase(enum.Enum):
    """Where a run stands, leaving aside whether it is paused or being cancelled."""

    # Enum's own is a function in Python, and phases are looked up for every event that is written.
    __hash__ = object.__hash__

    NEW = "New"
    PENDING = "Pending"
    APPROVED = "Approved"
    RUNNING = "Running"
    BLOCKED = "Blocked"
    CONTINUED = "Continued"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


#: What the code asks for. It can ask only while it runs.
MOVES: tuple[type[ev.Event], ...] = (
    ev.InvokeScheduled,
    ev.TimerScheduled,
    ev.TimerCancelled,
    ev.RandomGenerated,
    ev.TimeRecorded,
    ev.JoinSetCreated,
    ev.JoinSetSubmitted,
    ev.JoinSetAwaited,
    ev.StateSet,
    ev.StateCleared,
    ev.PromiseCreated,
    ev.ExecutionAwaiting,
    ev.ExecutionCompleted,
    ev.ExecutionContinued,
)
#: What reaches any open run, even one that was not admitted yet.
ARRIVALS: tuple[type[ev.Event], ...] = (
    ev.CancelRequested,
    ev.SignalDelivered,
    ev.SignalAccepted,
    ev.SignalRejected,
    ev.RunPaused,
    ev.RunResumed,
)
#: What happens to the things a run has asked for, and what its activation takes in.
FACTS: tuple[type[ev.Event], ...] = (
    ev.InvokeStarted,
    ev.InvokeCompleted,
    ev.InvokeRetrying,
    ev.TimerFired,
    ev.SignalReceived,
    ev.PromiseResolved,
    ev.StepSkipped,
    ev.StepRetryRequested,
    ev.Recorded,
)
WAITING_ROOM = (Phase.PENDING, Phase.APPROVED)
ADMITTED = (Phase.RUNNING, Phase.BLOCKED)

#: The events that change the phase. ``ExecutionStarted`` is refined by ``OPENS_AS``.
CHANGES: dict[tuple[Phase, type[ev.Event]], Phase] = {
    (Phase.NEW, ev.ExecutionStarted): Phase.RUNNING,
    (Phase.PENDING, ev.RunApproved): Phase.APPROVED,
    (Phase.PENDING, ev.RunAdmitted): Phase.RUNNING,
    (Phase.PENDING, ev.ExecutionCancelled): Phase.CANCELLED,
    (Phase.PENDING, ev.ExecutionFailed): Phase.FAILED,
    (Phase.APPROVED, ev.RunAdmitted): Phase.RUNNING,
    (Phase.APPROVED, ev.ExecutionCancelled): Phase.CANCELLED,
    (Phase.APPROVED, ev.ExecutionFailed): Phase.FAILED,
    (Phase.RUNNING, ev.ExecutionAwaiting): Phase.BLOCKED,
    (Phase.RUNNING, ev.ExecutionContinued): Phase.CONTINUED,
    (Phase.RUNNING, ev.ExecutionCompleted): Phase.COMPLETED,
    (Phase.RUNNING, ev.ExecutionFailed): Phase.FAILED,
    (Phase.RUNNING, ev.ExecutionCancelled): Phase.CANCELLED,
    (Phase.BLOCKED, ev.ExecutionResumed): Phase.RUNNING,
    (Phase.BLOCKED, ev.ExecutionFailed): Phase.FAILED,
    (Phase.BLOCKED, ev.ExecutionCancelled): Phase.CANCELLED,
    (Phase.CONTINUED, ev.ExecutionStarted): Phase.RUNNING,
}
#: Every legal event in every phase, and the phase after it.
TRANSITIONS: dict[tuple[Phase, type[ev.Event]], Phase] = {
    **{(phase, kind): phase for phase in WAITING_ROOM + ADMITTED for kind in ARRIVALS},
    **{(phase, kind): phase for phase in ADMITTED for kind in FACTS},
    **{(Phase.RUNNING, kind): Phase.RUNNING for kind in MOVES},
    **CHANGES,
}
#: The same, phase by phase: what is legal in each, and what follows.
NEXT: dict[Phase, dict[type[ev.Event], Phase]] = {
    phase: {kind: after for (before, kind), after in TRANSITIONS.items() if before is phase}
    for phase in Phase
}
#: The phase a segment opens in, by how the run is admitted.
OPENS_AS: dict[ev.Admission, Phase] = {
    "now": Phase.RUNNING,
    "queued": Phase.PENDING,
    "approval": Phase.PENDING,
}
#: The flag that an event sets or clears next to the phase.
FLAGS: dict[type[ev.Event], dict[str, bool]] = {
    ev.ExecutionStarted: {"cancelling": False},
    ev.CancelRequested: {"cancelling": True},
    ev.ExecutionCompleted: {"cancelling": False},
    ev.ExecutionFailed: {"cancelling": False},
    ev.ExecutionCancelled: {"cancelling": False},
    ev.RunPaused: {"paused": True},
    ev.RunResumed: {"paused": False},
}
#: The contract's word for each phase of a run that is not paused.
PUBLIC: dict[Phase, str] = {
    Phase.NEW: "PENDING",
    Phase.PENDING: "PENDING",
    Phase.APPROVED: "APPROVED",
    Phase.RUNNING: "RUNNING",
    Phase.BLOCKED: "RUNNING",
    Phase.CONTINUED: "RUNNING",
    Phase.COMPLETED: "COMPLETED",
    Phase.FAILED: "FAILED",
    Phase.CANCELLED: "CANCELLED",
}
#: The journal's word for each phase of a run that is neither paused nor cancelling.
WORDS: dict[Phase, str] = {
    **{phase: phase.value for phase in Phase},
    Phase.NEW: "Pending",
    Phase.CONTINUED: "Running",
}
ENDED = frozenset({Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED})


@dataclass(frozen=True, slots=True)
class RunState:
    """What the journal so far says of the run; ``waiting`` is set exactly while it is blocked."""

    phase: Phase = Phase.NEW
    waiting: ev.ExecutionAwaiting | None = None
    cancelling: bool = False
    paused: bool = False

    @property
    def ended(self) -> bool:
        """Whether a terminal event was journaled; nothing may follow it."""
        return self.phase in ENDED

    @property
    def status(self) -> str:
        """The journal's word: of cancelling and paused, the one that cannot be undone is shown."""
        if not self.ended and self.cancelling:
            return "Cancelling"
        if not self.ended and self.paused:
            return "Paused"
        return WORDS[self.phase]

    @property
    def public_status(self) -> str:
        """The contract's word, as snapshots and ``status()`` show it."""
        if not self.ended and self.paused:
            return "PAUSED"
        return PUBLIC[self.phase]


NEW = RunState()


def next_phase(phase: Phase, event: ev.Event) -> Phase | None:
    """Return the phase after *event*; None if the table does not have it in *phase*."""
    after = TRANSITIONS.get((phase, type(event)))
    if type(event) is ev.ExecutionStarted and after is not None:
        return OPENS_AS[event.admission]
    return after


def allowed(state: RunState, event: ev.Event) -> bool:
    """Tell whether the table has *event* for the phase that *state* is in."""
    return next_phase(state.phase, event) is not None


def advance(state: RunState, event: ev.Event) -> RunState:
    """Return the state after *event*; an event that is not allowed leaves it as it was."""
    kind = type(event)
    phase = next_phase(state.phase, event)
    if phase is None or (phase is state.phase and kind not in FLAGS):
        return state
    waiting = state.waiting if phase is Phase.BLOCKED else None
    if isinstance(event, ev.ExecutionAwaiting):
        waiting = event
    return replace(state, phase=phase, waiting=waiting, **FLAGS.get(kind, {}))


def fold(entries: Iterable[ev.Entry]) -> RunState:
    """Return the state of a run whose journal is *entries*."""
    state = NEW
    for entry in entries:
        state = advance(state, entry.event)
    return state
