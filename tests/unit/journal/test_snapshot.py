"""What a snapshot says of a run."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest
from msgspec.structs import replace

from tidewheel.journal import events as ev
from tidewheel.journal.public import PublicEvent, PublicFold, publish
from tidewheel.journal.snapshot import (
    EngineRunRef,
    Failure,
    RunSnapshot,
    SnapshotBuilder,
    StepSnapshot,
    empty,
    from_json,
    has_gap,
    reduce,
    reduce_all,
    snapshot_of,
    to_json,
)
from tidewheel.journal.status import fold

AT = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
STARTED = ev.ExecutionStarted(workflow="fulfil", version="v7", input=[42])
QUEUED = ev.ExecutionStarted(workflow="fulfil", admission="approval")
OK = ev.Result(ok="done")
BROKEN = ev.Error(type="CardDeclined", message="no funds", retryable=True, attempts=3)
SCHEDULED = ev.InvokeScheduled(promise_id="0", function_name="charge", key="pay")
BEGUN = ev.InvokeStarted(promise_id="0", attempt=1)
DONE = ev.InvokeCompleted(promise_id="0", attempt=2, result=OK)
SPENT = ev.InvokeCompleted(promise_id="0", attempt=3, result=ev.Result(error=BROKEN))
PARKED = ev.InvokeRetrying(promise_id="0", failed_attempt=1, error=BROKEN)
FAILURE = Failure(code="CardDeclined", message="no funds", retryable=True)


def second(number: int) -> dt.datetime:
    """Return the time of the entry *number*."""
    return AT + dt.timedelta(seconds=number)


def journal(*events: ev.Event) -> list[ev.Entry]:
    """Return *events* as a journal with one entry a second."""
    return [ev.Entry(seq, second(seq), event) for seq, event in enumerate(events)]


def seen(*events: ev.Event) -> RunSnapshot:
    """Return the snapshot of a run ``r-1`` with this journal."""
    return snapshot_of(journal(*events), "r-1")


def published(*events: ev.Event) -> list[PublicEvent]:
    """Return what a run ``r-1`` with this journal publishes."""
    state, found = PublicFold.start("r-1"), []
    for entry in journal(*events):
        state, event = publish(state, entry)
        if event is not None:
            found.append(event)
    return found


def test_a_run_that_has_published_nothing_is_pending() -> None:
    """Its watermark is before the first event."""
    assert empty("r-1") == RunSnapshot(run_id="r-1", status="PENDING", last_event_seq=-1, steps=())


def test_a_completed_run_has_its_step_and_its_times() -> None:
    """Every field of the contract is filled from the events."""
    snapshot = seen(STARTED, SCHEDULED, BEGUN, DONE, ev.ExecutionCompleted(result=OK))

    step = StepSnapshot(
        step_id="pay",
        name="charge",
        status="SUCCESS",
        logical_attempt_id="1",
        engine_attempt_id="2",
        started_at=second(2),
        completed_at=second(3),
    )
    assert snapshot == RunSnapshot(
        run_id="r-1",
        workflow="fulfil",
        status="COMPLETED",
        last_event_seq=4,
        steps=(step,),
        started_at=second(0),
        completed_at=second(4),
        total_duration_ms=4000,
        engine_run_ref=EngineRunRef(workflow="fulfil", version="v7"),
    )


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([QUEUED], "PENDING"),
        ([QUEUED, ev.RunApproved()], "APPROVED"),
        ([QUEUED, ev.RunApproved(), ev.RunAdmitted()], "RUNNING"),
        ([STARTED], "RUNNING"),
        ([STARTED, ev.RunPaused()], "PAUSED"),
        ([STARTED, ev.RunPaused(), ev.RunPaused(), ev.RunResumed()], "RUNNING"),
        ([STARTED, ev.ExecutionCompleted()], "COMPLETED"),
        ([STARTED, ev.ExecutionFailed()], "FAILED"),
        ([STARTED, ev.ExecutionCancelled()], "CANCELLED"),
        ([STARTED, ev.RunPaused(), ev.ExecutionCancelled()], "CANCELLED"),
        ([QUEUED, ev.ExecutionCancelled()], "CANCELLED"),
        ([QUEUED, ev.RunApproved(), ev.RunPaused()], "PAUSED"),
        ([QUEUED, ev.RunApproved(), ev.RunPaused(), ev.RunResumed()], "APPROVED"),
        ([QUEUED, ev.RunPaused(), ev.RunApproved(), ev.RunAdmitted()], "PAUSED"),
        ([QUEUED, ev.RunPaused(), ev.RunAdmitted(), ev.RunResumed()], "RUNNING"),
        ([STARTED, ev.SignalAccepted(signal_id="s"), ev.SignalRejected(signal_id="t")], "RUNNING"),
        ([STARTED, ev.ExecutionAwaiting(waiting_on=["0"], kind="single")], "RUNNING"),
    ],
)
def test_the_status_is_the_journals_own(events: list[ev.Event], status: str) -> None:
    """A snapshot and ``status()`` never disagree, not even where a run is paused before it starts."""
    snapshot = seen(*events)

    assert snapshot.status == status
    assert snapshot.status == fold(journal(*events)).public_status


def test_a_failed_step_has_its_error_and_is_counted() -> None:
    """The error's type is the contract's code."""
    snapshot = seen(STARTED, SCHEDULED, BEGUN, SPENT)

    (step,) = snapshot.steps
    assert (step.status, step.error, step.engine_attempt_id) == ("FAILED", FAILURE, "3")
    assert (snapshot.failed_steps, snapshot.status) == (1, "RUNNING")


def test_a_new_logical_attempt_starts_afresh() -> None:
    """A parked step that an operator retries is failed no longer."""
    again = ev.StepRetryRequested(promise_id="0", logical_attempt=2)
    snapshot = seen(STARTED, SCHEDULED, BEGUN, PARKED, again, ev.InvokeStarted(promise_id="0", attempt=2))

    (step,) = snapshot.steps
    assert (step.status, step.error, step.logical_attempt_id) == ("RUNNING", None, "2")
    assert (step.started_at, step.completed_at) == (second(5), None)
    assert snapshot.failed_steps == 0


def test_a_skipped_step_says_why() -> None:
    """The operator's reason takes the place of the error."""
    skipped = ev.StepSkipped(promise_id="0", result=OK, reason="paid by hand")
    snapshot = seen(STARTED, SCHEDULED, BEGUN, PARKED, skipped)

    (step,) = snapshot.steps
    assert (step.status, step.reason, step.error) == ("SKIPPED", "paid by hand", None)
    assert snapshot.failed_steps == 0


def test_a_failed_run_has_its_root_cause() -> None:
    """It is the error that ended the run."""
    snapshot = seen(STARTED, ev.ExecutionFailed(error=BROKEN))

    assert snapshot.root_cause == FAILURE


def test_a_run_cancelled_before_it_started_has_no_duration() -> None:
    """It took no time that anybody could measure, but it is known what would have run."""
    snapshot = seen(QUEUED, ev.ExecutionCancelled())

    assert (snapshot.started_at, snapshot.total_duration_ms) == (None, None)
    assert (snapshot.completed_at, snapshot.workflow) == (second(1), "fulfil")


def test_a_clock_that_goes_back_gives_no_negative_duration() -> None:
    """Start and end may be written by two machines."""
    entries = [ev.Entry(0, second(5), STARTED), ev.Entry(1, second(2), ev.ExecutionCompleted())]

    assert snapshot_of(entries, "r-1").total_duration_ms == 0


def test_a_journal_without_times_gives_a_snapshot_without_times() -> None:
    """Times are for people; nothing depends on them."""
    entries = [ev.Entry(0, None, STARTED), ev.Entry(1, None, ev.ExecutionCompleted())]

    snapshot = snapshot_of(entries, "r-1")

    assert (snapshot.status, snapshot.completed_at, snapshot.total_duration_ms) == ("COMPLETED", None, None)


def test_an_event_already_applied_changes_nothing() -> None:
    """The very same snapshot comes back."""
    events = published(STARTED, SCHEDULED, BEGUN, DONE)
    snapshot = reduce_all(empty("r-1"), events)

    assert all(reduce(snapshot, event) is snapshot for event in events)


@pytest.mark.parametrize("kind", ["SomethingNew", "OrderPaid"])
def test_an_unknown_event_only_moves_the_watermark(kind: str) -> None:
    """An older reader keeps up with a newer writer."""
    (event,) = published(STARTED)
    before = reduce(empty("r-1"), event)

    after = reduce(before, replace(event, event_type=kind, run_seq=9, workflow="other", data=None))

    assert after == replace(before, last_event_seq=9)


def test_a_snapshot_is_never_changed() -> None:
    """Events applied to it make new ones, and a builder that goes on leaves what it gave."""
    builder = SnapshotBuilder(empty("r-1"))
    first, *rest = published(STARTED, SCHEDULED, BEGUN, DONE)
    builder.apply(first)
    early = builder.freeze()

    for event in rest:
        builder.apply(event)

    assert (early.last_event_seq, early.steps) == (0, ())
    assert builder.freeze() == seen(STARTED, SCHEDULED, BEGUN, DONE)


def test_steps_are_in_the_order_they_began() -> None:
    """The order of paths or names does not matter."""
    scheduled = [ev.InvokeScheduled(promise_id=path) for path in ("0", "1", "2")]
    started = [ev.InvokeStarted(promise_id=path, attempt=1) for path in ("2", "0", "1")]

    snapshot = seen(STARTED, *scheduled, *started)

    assert [step.step_id for step in snapshot.steps] == ["2", "0", "1"]


@pytest.mark.parametrize(
    ("last_event_seq", "prev_seq", "gap"),
    [(-1, None, False), (-1, 0, True), (4, 4, False), (4, 3, False), (4, 5, True), (4, None, False)],
)
def test_a_gap_is_a_previous_event_that_was_not_seen(
    last_event_seq: int, prev_seq: int | None, gap: bool
) -> None:
    """The first event of a run follows nothing, and one that is late is no gap."""
    assert has_gap(last_event_seq, prev_seq) is gap


def test_the_json_has_the_contracts_names() -> None:
    """Camel case, times as text, and it reads back as the same value."""
    snapshot = seen(STARTED, SCHEDULED, BEGUN, SPENT, ev.ExecutionFailed(error=BROKEN))

    data = to_json(snapshot)

    failure = {"code": "CardDeclined", "message": "no funds", "retryable": True}
    assert data == {
        "runId": "r-1",
        "workflow": "fulfil",
        "status": "FAILED",
        "lastEventSeq": 4,
        "steps": [
            {
                "stepId": "pay",
                "name": "charge",
                "status": "FAILED",
                "logicalAttemptId": "1",
                "engineAttemptId": "3",
                "startedAt": "2026-03-01T12:00:02Z",
                "completedAt": "2026-03-01T12:00:03Z",
                "artifacts": [],
                "error": failure,
                "reason": None,
            }
        ],
        "failedSteps": 1,
        "artifacts": [],
        "startedAt": "2026-03-01T12:00:00Z",
        "completedAt": "2026-03-01T12:00:04Z",
        "totalDurationMs": 4000,
        "engineRunRef": {"workflow": "fulfil", "version": "v7"},
        "rootCause": failure,
        "pausedFrom": None,
        "stale": False,
    }
    assert from_json(msgspec.json.decode(msgspec.json.encode(data))) == snapshot
