"""The status machine is walked by hand: table, flags and words."""

from __future__ import annotations

import itertools

import pytest

from tidewheel.journal import events as ev
from tidewheel.journal.rules.control_flow import no_moves_while_blocked
from tidewheel.journal.status import (
    ENDED,
    MOVES,
    NEW,
    TRANSITIONS,
    Phase,
    RunState,
    advance,
    allowed,
    fold,
)

STARTED = ev.ExecutionStarted()
QUEUED = ev.ExecutionStarted(admission="queued")
APPROVAL = ev.ExecutionStarted(admission="approval")
AWAITING = ev.ExecutionAwaiting(waiting_on=["0"], kind="single")
RESUMED = ev.ExecutionResumed()
CANCEL = ev.CancelRequested()
CONTINUED = ev.ExecutionContinued()


def _after(*events: ev.Event) -> RunState:
    return fold(ev.Entry(number, None, event) for number, event in enumerate(events))


@pytest.mark.parametrize(
    ("events", "status", "public"),
    [
        ((), "Pending", "PENDING"),
        ((STARTED,), "Running", "RUNNING"),
        ((QUEUED,), "Pending", "PENDING"),
        ((APPROVAL,), "Pending", "PENDING"),
        ((APPROVAL, ev.RunApproved()), "Approved", "APPROVED"),
        ((APPROVAL, ev.RunApproved(), ev.RunAdmitted()), "Running", "RUNNING"),
        ((QUEUED, ev.RunAdmitted()), "Running", "RUNNING"),
        ((QUEUED, CANCEL, ev.ExecutionCancelled()), "Cancelled", "CANCELLED"),
        ((STARTED, AWAITING), "Blocked", "RUNNING"),
        ((STARTED, AWAITING, RESUMED), "Running", "RUNNING"),
        ((STARTED, CANCEL), "Cancelling", "RUNNING"),
        ((STARTED, AWAITING, CANCEL), "Cancelling", "RUNNING"),
        ((STARTED, ev.RunPaused()), "Paused", "PAUSED"),
        ((STARTED, ev.RunPaused(), AWAITING), "Paused", "PAUSED"),
        ((STARTED, ev.RunPaused(), CANCEL), "Cancelling", "PAUSED"),
        ((STARTED, ev.RunPaused(), ev.RunResumed()), "Running", "RUNNING"),
        ((STARTED, ev.ExecutionCompleted()), "Completed", "COMPLETED"),
        ((STARTED, ev.ExecutionFailed()), "Failed", "FAILED"),
        ((STARTED, CANCEL, ev.ExecutionCancelled()), "Cancelled", "CANCELLED"),
        ((STARTED, CANCEL, ev.ExecutionCompleted()), "Completed", "COMPLETED"),
        ((STARTED, ev.RunPaused(), ev.ExecutionFailed()), "Failed", "FAILED"),
        ((STARTED, CONTINUED), "Running", "RUNNING"),
        ((STARTED, CONTINUED, STARTED, AWAITING), "Blocked", "RUNNING"),
    ],
)
def test_events_lead_to_a_status(events: tuple[ev.Event, ...], status: str, public: str) -> None:
    """The journal's word and the contract's word follow from the events alone."""
    state = _after(*events)

    assert (state.status, state.public_status) == (status, public)


def test_cancelling_survives_blocking_and_resuming() -> None:
    """A run that cleans up after a cancel is still being cancelled; only a terminal event ends that."""
    state = _after(STARTED, CANCEL, AWAITING, RESUMED)
    ended = advance(state, ev.ExecutionFailed())

    assert state.status == "Cancelling"
    assert not ended.cancelling


def test_a_new_segment_is_not_being_cancelled() -> None:
    """A cancel belongs to the segment it was requested in; a pause belongs to the run."""
    state = _after(STARTED, CANCEL, ev.RunPaused(), CONTINUED)
    opened = advance(state, STARTED)

    assert state.cancelling
    assert not opened.cancelling
    assert opened.paused


def test_the_wait_is_known_exactly_while_the_run_is_blocked() -> None:
    """``waiting`` is the event that blocked the run, also while facts and cancels arrive."""
    blocked = _after(STARTED, AWAITING, CANCEL, ev.RunPaused())

    assert blocked.waiting is AWAITING
    assert advance(blocked, RESUMED).waiting is None
    assert advance(blocked, ev.ExecutionCancelled()).waiting is None


@pytest.mark.parametrize("phase", Phase)
def test_an_event_that_is_not_allowed_changes_nothing(phase: Phase) -> None:
    """A missing key of the table is the error, and the state stays as it was."""
    waiting = AWAITING if phase is Phase.BLOCKED else None
    state = RunState(phase, waiting)
    events = (STARTED, AWAITING, RESUMED, CANCEL, CONTINUED)
    illegal = [event for event in events if not allowed(state, event)]

    assert illegal
    assert all(advance(state, event) is state for event in illegal)


def test_nothing_is_allowed_after_the_end() -> None:
    """No terminal phase has a way out, nor any event that may stay in it."""
    assert not [key for key in TRANSITIONS if key[0] in ENDED]


def test_every_phase_is_reached_and_every_event_is_somewhere_legal() -> None:
    """The table leaves out neither a phase nor an event class."""
    assert set(TRANSITIONS.values()) | {Phase.NEW} | {Phase.PENDING} == set(Phase)
    assert {kind for _, kind in TRANSITIONS} == set(ev.EVENT_TYPES.values())


def test_the_table_and_the_rules_agree_on_what_a_blocked_run_may_not_do() -> None:
    """CF-11 judges exactly the moves that the table does not have for a blocked run."""
    missing = {kind for kind in MOVES if (Phase.BLOCKED, kind) not in TRANSITIONS}

    assert missing == set(MOVES)
    assert missing <= no_moves_while_blocked.reads


def test_a_state_without_events_is_the_first_one() -> None:
    """An empty journal is a run that has not started."""
    assert fold([]) is NEW
    assert not NEW.ended


def test_the_fold_never_raises() -> None:
    """Any three events in any order have a status."""
    events: list[ev.Event] = [STARTED, QUEUED, AWAITING, RESUMED, CANCEL, CONTINUED]
    events += [ev.ExecutionCompleted(), ev.RunPaused()]

    words = {_after(*some).status for some in itertools.product(events, repeat=3)}

    assert words <= {"Pending", "Running", "Blocked", "Cancelling", "Paused", "Completed"}
