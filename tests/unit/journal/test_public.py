"""What a run's journal tells the outside."""

from __future__ import annotations

import datetime as dt
import hashlib
import uuid

import msgspec
import pytest

from tidewheel.journal import events as ev
from tidewheel.journal.public import PUBLIC_TYPES, PublicEvent, PublicFold, event_id, idempotency_key, publish

AT = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
STARTED = ev.ExecutionStarted(workflow="fulfil", version="v7", input=[42])
OK = ev.Result(ok="done")
BROKEN = ev.Error(type="CardDeclined", message="no funds", retryable=False, attempts=3)


def journal(*events: ev.Event) -> list[ev.Entry]:
    """Return *events* as a journal."""
    return [ev.Entry(seq, AT, event) for seq, event in enumerate(events)]


def published(*events: ev.Event) -> list[PublicEvent]:
    """Return what a run ``r-1`` with this journal publishes."""
    fold, found = PublicFold.start("r-1"), []
    for entry in journal(*events):
        fold, event = publish(fold, entry)
        if event is not None:
            found.append(event)
    return found


def types(*events: ev.Event) -> list[str]:
    """Return the types of what is published after the run has started."""
    first, *rest = published(STARTED, *events)
    assert first.event_type == "RunStarted"
    return [event.event_type for event in rest]


def scheduled(path: str = "0", *, key: str | None = None, logical_attempt: int = 1) -> ev.InvokeScheduled:
    """Return the scheduling of a step ``charge``."""
    given = msgspec.UNSET if key is None else key
    return ev.InvokeScheduled(
        promise_id=path, function_name="charge", key=given, logical_attempt=logical_attempt
    )


def started(path: str = "0", attempt: int = 1) -> ev.InvokeStarted:
    """Return the start of an attempt."""
    return ev.InvokeStarted(promise_id=path, attempt=attempt)


def completed(path: str = "0", attempt: int = 1, result: ev.Result = OK) -> ev.InvokeCompleted:
    """Return the completion of a step."""
    return ev.InvokeCompleted(promise_id=path, attempt=attempt, result=result)


def retrying(path: str = "0", attempt: int = 1, retry_at: dt.datetime | None = AT) -> ev.InvokeRetrying:
    """Return a failed attempt; with ``retry_at=None`` the step is parked."""
    return ev.InvokeRetrying(promise_id=path, failed_attempt=attempt, error=BROKEN, retry_at=retry_at)


def sha(text: str) -> str:
    """Return the SHA-256 of *text* in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_run_with_one_step_tells_its_story() -> None:
    """Starts and ends of the run and of its steps are told; waiting and resuming are not."""
    events = published(
        STARTED,
        scheduled(),
        ev.ExecutionAwaiting(waiting_on=["0"], kind="single"),
        started(),
        completed(),
        ev.ExecutionResumed(),
        ev.ExecutionCompleted(result=OK),
    )

    assert [(event.event_type, event.run_seq, event.prev_seq) for event in events] == [
        ("RunStarted", 0, None),
        ("StepStarted", 3, 0),
        ("StepCompleted", 4, 3),
        ("RunCompleted", 6, 4),
    ]


def test_a_run_event_has_no_step() -> None:
    """Its key has the step RUN and the logical attempt 1; the event itself has a null step."""
    (event,) = published(STARTED)

    assert event == PublicEvent(
        run_id="r-1",
        run_seq=0,
        prev_seq=None,
        event_type="RunStarted",
        workflow="fulfil",
        step_id=None,
        step_name=None,
        logical_attempt_id="1",
        engine_attempt_id=None,
        plan_version="v7",
        emitted_at=AT,
        persisted_at=AT,
        caused_by_signal_id=None,
        parent_event_id=None,
        data={"input": [42]},
        idempotency_key=sha("r-1|RUN|1|RunStarted|v7"),
    )


def test_a_step_event_names_its_step_and_both_attempts() -> None:
    """The logical attempt is in the key, the engine's attempt is only shown."""
    *_, step, event = published(STARTED, scheduled("4", key="pay"), started("4"), completed("4", attempt=3))

    assert event == PublicEvent(
        run_id="r-1",
        run_seq=3,
        prev_seq=2,
        event_type="StepCompleted",
        workflow="fulfil",
        step_id="pay",
        step_name="charge",
        logical_attempt_id="1",
        engine_attempt_id="3",
        plan_version="v7",
        emitted_at=AT,
        persisted_at=AT,
        caused_by_signal_id=None,
        parent_event_id=step.id,
        data={"result": "done"},
        idempotency_key=sha("r-1|pay|1|StepCompleted|v7"),
    )


def test_the_body_is_camel_case() -> None:
    """The names of the body are the contract's, in its order."""
    (event,) = published(STARTED)

    body = msgspec.json.decode(msgspec.json.encode(event))

    names = (
        "runId runSeq prevSeq eventType workflow stepId stepName logicalAttemptId engineAttemptId "
        "planVersion emittedAt persistedAt causedBySignalId parentEventId data idempotencyKey"
    )
    assert list(body) == names.split()
    assert body["emittedAt"] == "2026-03-01T12:00:00Z"
    assert msgspec.json.decode(msgspec.json.encode(event), type=PublicEvent) == event


def test_the_key_is_the_contracts_and_the_id_is_made_of_it() -> None:
    """SHA-256 over the five parts in UTF-8 joined by a bar; the id is its first 16 bytes as a UUID."""
    key = idempotency_key("müller/7", "pay", 2, "StepFailed", "")

    assert key == sha("müller/7|pay|2|StepFailed|")
    assert event_id(key) == str(uuid.UUID(bytes=bytes.fromhex(key)[:16]))


def test_the_routing_key_is_namespace_workflow_and_type() -> None:
    """Consumers bind to parts of it."""
    (event,) = published(STARTED)

    assert event.routing_key("default") == "default.fulfil.RunStarted"


@pytest.mark.parametrize("admission", ["queued", "approval"])
def test_a_run_that_waits_for_admission_starts_when_admitted(admission: ev.Admission) -> None:
    """``RunStarted`` is told by ``RunAdmitted``, with the input."""
    waiting = ev.ExecutionStarted(workflow="fulfil", input=[1], admission=admission)

    (event,) = published(waiting, ev.RunAdmitted())

    assert (event.event_type, event.run_seq, event.data) == ("RunStarted", 1, {"input": [1]})


def test_an_approval_is_told_before_the_start() -> None:
    """It names its signal and has no parent, for nothing came before it."""
    waiting = ev.ExecutionStarted(workflow="fulfil", admission="approval")

    approval, start = published(waiting, ev.RunApproved(signal_id="s-1"), ev.RunAdmitted())

    assert (approval.event_type, approval.caused_by_signal_id) == ("RunApproved", "s-1")
    assert approval.parent_event_id is None
    assert (start.event_type, start.prev_seq) == ("RunStarted", 1)


def test_a_platform_retry_publishes_nothing() -> None:
    """The same logical attempt is the same step start, however often it is tried."""
    assert types(scheduled(), started(), retrying(), started(attempt=2), completed(attempt=2)) == [
        "StepStarted",
        "StepCompleted",
    ]


def test_a_final_error_is_a_failed_step() -> None:
    """The error is told in the one shape errors have."""
    *_, event = published(STARTED, scheduled(), started(), completed(result=ev.Result(error=BROKEN)))

    assert event.event_type == "StepFailed"
    assert event.data == {
        "error": {"type": "CardDeclined", "message": "no funds", "retryable": False, "attempts": 3}
    }


def test_a_parked_step_has_failed_until_it_is_tried_again() -> None:
    """Each logical attempt has its own start and end, and names the signal that asked for it."""
    parked = (scheduled(), started(), retrying(retry_at=None))
    asked = ev.StepRetryRequested(promise_id="0", signal_id="s-9")

    *_, first, failed, second, done = published(
        STARTED, *parked, asked, started(attempt=2), completed(attempt=2)
    )

    assert [(event.event_type, event.logical_attempt_id) for event in (first, failed, second, done)] == [
        ("StepStarted", "1"),
        ("StepFailed", "1"),
        ("StepStarted", "2"),
        ("StepCompleted", "2"),
    ]
    assert failed.parent_event_id == first.id
    assert done.parent_event_id == second.id
    assert second.caused_by_signal_id == "s-9"
    assert second.idempotency_key == sha("r-1|0|2|StepStarted|v7")


def test_a_retry_may_name_its_logical_attempt() -> None:
    """What the journal says counts; one that does not rise changes nothing."""
    named = ev.StepRetryRequested(promise_id="0", logical_attempt=5)
    stale = ev.StepRetryRequested(promise_id="0", logical_attempt=5)

    *_, event = published(STARTED, scheduled(), named, started(), stale, started(attempt=2))

    assert (event.event_type, event.logical_attempt_id) == ("StepStarted", "5")


def test_a_parked_step_that_completes_with_an_error_fails_once() -> None:
    """The failure of that logical attempt was told when it was parked."""
    failed = completed(result=ev.Result(error=BROKEN))

    assert types(scheduled(), started(), retrying(retry_at=None), failed) == ["StepStarted", "StepFailed"]


def test_a_skipped_step_tells_the_reason() -> None:
    """It hangs under the run, not under the start of an attempt."""
    skip = ev.StepSkipped(promise_id="0", result=OK, reason="paid by hand", signal_id="s-2")

    start, *_, event = published(STARTED, scheduled(), started(), skip)

    assert (event.event_type, event.data) == ("StepSkipped", {"reason": "paid by hand"})
    assert (event.caused_by_signal_id, event.parent_event_id) == ("s-2", start.id)
    assert event.engine_attempt_id is None


def test_a_missing_start_is_not_invented() -> None:
    """The completion then hangs under the run."""
    start, event = published(STARTED, scheduled(), completed())

    assert event.event_type == "StepCompleted"
    assert event.parent_event_id == start.id


def test_a_settled_step_publishes_nothing_more() -> None:
    """A late start after the completion would tell readers that the step runs."""
    late = (started(), retrying(retry_at=None), completed())

    assert types(scheduled(), completed(), *late) == ["StepCompleted"]


def test_a_step_nobody_scheduled_publishes_nothing() -> None:
    """There is no name to tell it under."""
    skip = ev.StepSkipped(promise_id="0", result=OK)
    again = ev.StepRetryRequested(promise_id="0")

    assert types(started(), retrying(retry_at=None), completed(), skip, again) == []


def test_a_key_taken_again_after_continuing_has_its_path_added() -> None:
    """The step id stays what the code said; only the key tells the two apart."""
    *_, first, second = published(
        STARTED,
        scheduled("0", key="pay"),
        completed("0"),
        ev.ExecutionContinued(next_position=1),
        STARTED,
        scheduled("1", key="pay"),
        completed("1"),
    )

    assert first.idempotency_key == sha("r-1|pay|1|StepCompleted|v7")
    assert second.idempotency_key == sha("r-1|pay#1|1|StepCompleted|v7")
    assert (first.step_id, second.step_id) == ("pay", "pay")


def test_a_key_that_looks_like_a_path_is_told_apart_from_it() -> None:
    """A step with the key 1 and the step at path 1 are two steps."""
    *_, keyed, positional = published(
        STARTED, scheduled("0", key="1"), completed("0"), scheduled("1"), completed("1")
    )

    assert keyed.idempotency_key == sha("r-1|1|1|StepCompleted|v7")
    assert positional.idempotency_key == sha("r-1|1#1|1|StepCompleted|v7")


def test_a_key_taken_again_as_a_later_logical_attempt_stays_plain() -> None:
    """A plan's retry is a new attempt of the same step, so its key differs already."""
    again = scheduled("1", key="pay", logical_attempt=2)

    *_, event = published(STARTED, scheduled("0", key="pay"), completed("0"), again, completed("1"))

    assert event.idempotency_key == sha("r-1|pay|2|StepCompleted|v7")


def test_a_step_scheduled_twice_publishes_once() -> None:
    """No journal that keeps the rules has it; a key is used once all the same."""
    events = published(
        STARTED, scheduled(), scheduled(), completed(), scheduled(), completed(), scheduled(), completed()
    )

    keys = [event.idempotency_key for event in events]
    assert len(keys) == len(set(keys))


def test_the_next_segment_publishes_nothing_itself() -> None:
    """Continuing is not news, even where the next segment runs another version."""
    later = ev.ExecutionStarted(workflow="fulfil", version="v8")

    start, end = published(STARTED, ev.ExecutionContinued(), later, ev.ExecutionCompleted(result=OK))

    assert (start.event_type, end.event_type) == ("RunStarted", "RunCompleted")
    assert (start.plan_version, end.plan_version) == ("v7", "v8")
    assert end.parent_event_id == start.id


@pytest.mark.parametrize(
    ("event", "event_type", "data"),
    [
        (ev.ExecutionCompleted(result=OK), "RunCompleted", {"result": "done"}),
        (ev.ExecutionFailed(error=ev.Error(type="E")), "RunFailed", None),
        (ev.ExecutionCancelled(reason="late"), "RunCancelled", {"reason": "late"}),
    ],
)
def test_the_end_of_a_run_hangs_under_its_start(event: ev.Event, event_type: str, data: ev.Json) -> None:
    """However it ends, once."""
    start, end, *more = published(STARTED, event, event)

    assert (end.event_type, end.parent_event_id, more) == (event_type, start.id, [])
    assert end.data == (data or {"error": {"type": "E", "message": "", "retryable": False}})


def test_pauses_are_told_once_per_signal() -> None:
    """A second pause is a second event; the same signal again is not."""
    pause, resume = ev.RunPaused(signal_id="s-1"), ev.RunResumed(signal_id="s-2")

    _, *events = published(STARTED, pause, pause, resume, ev.RunPaused(signal_id="s-3"))

    assert [event.event_type for event in events] == ["RunPaused", "RunResumed", "RunPaused"]
    assert events[0].idempotency_key == sha("r-1|RUN#s-1|1|RunPaused|v7")
    assert events[0].caused_by_signal_id == "s-1"


def test_a_pause_without_a_signal_is_told_by_its_place() -> None:
    """Its ``run_seq`` takes the place of the signal id."""
    _, first, second = published(STARTED, ev.RunPaused(), ev.RunPaused())

    assert first.idempotency_key == sha("r-1|RUN#1|1|RunPaused|v7")
    assert second.idempotency_key == sha("r-1|RUN#2|1|RunPaused|v7")
    assert first.caused_by_signal_id is None


def test_decided_signals_are_told() -> None:
    """Who sent which signal, and why it was refused."""
    accepted = ev.SignalAccepted(signal_id="s-1", signal_name="approve", principal="ann")
    rejected = ev.SignalRejected(signal_id="s-1", signal_name="approve", reason="not yours")

    _, yes, no = published(STARTED, accepted, rejected)

    assert (yes.event_type, yes.data) == ("SignalAccepted", {"signalName": "approve", "principal": "ann"})
    assert no.data == {"signalName": "approve", "principal": None, "reason": "not yours"}
    assert yes.caused_by_signal_id == no.caused_by_signal_id == "s-1"


def test_a_deciders_event_is_told_under_its_own_name() -> None:
    """Each time it is recorded."""
    recorded = ev.Recorded(name="OrderPaid", data={"amount": 3})

    _, first, second = published(STARTED, recorded, recorded)

    assert (first.event_type, first.data) == ("OrderPaid", {"amount": 3})
    assert first.idempotency_key == sha("r-1|RUN#1|1|OrderPaid|v7")
    assert second.prev_seq == 1


@pytest.mark.parametrize("name", PUBLIC_TYPES)
def test_a_decider_cannot_speak_for_the_engine(name: str) -> None:
    """An event of the contract's name would make readers believe what did not happen."""
    assert types(ev.Recorded(name=name)) == []


def test_an_entry_folded_twice_changes_nothing() -> None:
    """Whoever reads a journal again from too early a place does no harm."""
    entries = journal(STARTED, ev.Recorded(name="OrderPaid"))
    fold = PublicFold.start("r-1")
    for entry in entries:
        fold, _ = publish(fold, entry)

    for entry in entries:
        same, event = publish(fold, entry)

        assert same is fold
        assert event is None


def test_an_old_fold_still_gives_its_own_answers() -> None:
    """A commit that was refused is folded again from the value before it."""
    fold, _ = publish(PublicFold.start("r-1"), ev.Entry(0, AT, STARTED))
    before, _ = publish(fold, ev.Entry(1, AT, scheduled()))
    after, lost = publish(before, ev.Entry(2, AT, started()))
    publish(after, ev.Entry(3, AT, completed()))

    _, again = publish(before, ev.Entry(2, AT, started()))
    _, other = publish(before, ev.Entry(2, AT, completed()))

    assert again == lost
    assert other is not None
    assert other.event_type == "StepCompleted"


def test_settled_steps_are_forgotten() -> None:
    """A long run keeps its open steps and the ids it has used, nothing else of the steps."""
    fold = PublicFold.start("r-1")
    steps = [event for n in range(100) for event in (scheduled(str(n)), started(str(n)), completed(str(n)))]
    for entry in journal(STARTED, *steps):
        fold, _ = publish(fold, entry)

    assert (len(fold.open), len(fold.used)) == (0, 100)
    assert fold.input is None
