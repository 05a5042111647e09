"""Who owes an open run its next activation: one case per source, and the ways to have none."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tidewheel.journal import events as ev
from tidewheel.journal.status import Phase
from tidewheel.store.records import RunRecord, StepRecord, TimerRecord
from tidewheel.store.wakeups import Surroundings, Wakeup, outside_waits, own_wakeups, wakeups

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def a_run(**changes: Any) -> RunRecord:
    """A run that is blocked, and to which nothing is owed."""
    plain: dict[str, Any] = {
        "key": b"\0" * 16,
        "namespace": "default",
        "run_id": "r-1",
        "workflow": "order",
        "queue": "default",
        "phase": Phase.BLOCKED.value,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return RunRecord(**plain | changes)


def a_step(**changes: Any) -> StepRecord:
    """A started step whose worker nobody knows."""
    plain: dict[str, Any] = {
        "path": "0",
        "kind": "function",
        "function_name": "charge",
        "queue": "default",
        "dispatch": "inline",
        "state": "started",
        "attempt": 1,
        "owner": "w-1",
        "scheduled_seq": 1,
        "scheduled_at": NOW,
        "step_id": "0",
        "key_part": "0",
    }
    return StepRecord(**plain | changes)


def entries(*events: ev.Event) -> list[ev.Entry]:
    """A journal of these events."""
    return [ev.Entry(place, NOW, event) for place, event in enumerate(events)]


def test_a_run_with_nothing_has_no_source() -> None:
    """This is what the doctor looks for."""
    assert wakeups(a_run(), Surroundings()) == []
    assert wakeups(a_run(phase=Phase.RUNNING.value), Surroundings()) == []


@pytest.mark.parametrize(
    ("changes", "waker"),
    [
        ({"wake_at": NOW}, "keeper"),
        ({"parked": "violation"}, "operator"),
        ({"paused": True}, "operator"),
        ({"phase": Phase.PENDING.value}, "operator"),
        ({"phase": Phase.APPROVED.value}, "operator"),
    ],
)
def test_the_row_alone_may_tell(changes: dict[str, Any], waker: str) -> None:
    """Then nothing else need be read."""
    run = a_run(**changes)

    assert [wakeup.waker for wakeup in own_wakeups(run)] == [waker]
    assert wakeups(run, Surroundings()) == own_wakeups(run)


def test_the_keeper_looks_after_the_owners_of_runs() -> None:
    """Whoever has the steps that are in the run's row, once it is dead, or if it was never heard of."""
    run = a_run(owner="w-1")

    assert [wakeup.waker for wakeup in wakeups(run, Surroundings())] == ["keeper"]
    assert wakeups(run, Surroundings(alive=["w-1"])) == []


@pytest.mark.parametrize(
    ("changes", "around", "wakers"),
    [
        ({}, {}, []),
        ({}, {"alive": {"w-1"}, "registered": {"w-1"}}, ["worker"]),
        ({}, {"alive": {"w-2"}}, []),
        ({}, {"registered": {"w-1"}}, ["keeper"]),
        ({"due_at": NOW}, {}, ["keeper"]),
        ({"state": "retrying", "owner": None, "due_at": NOW}, {}, ["keeper"]),
        ({"state": "retrying", "owner": None}, {}, []),
        ({"state": "scheduled", "owner": None, "dispatch": "queued", "due_at": NOW}, {}, ["keeper"]),
        ({"state": "scheduled", "owner": None, "dispatch": "queued"}, {}, []),
        ({"state": "parked", "owner": None}, {}, ["operator"]),
        ({"abandoned": True}, {"alive": {"w-1"}}, []),
        ({"kind": "workflow", "owner": None}, {"open_children": {"0"}}, ["child"]),
        ({"kind": "workflow", "owner": None}, {"open_children": {"1"}}, []),
    ],
)
def test_a_step_counts_if_somebody_will_see_to_it(
    changes: dict[str, Any], around: dict[str, Any], wakers: list[str]
) -> None:
    """A live worker, the keeper, an open child or an operator."""
    surroundings = Surroundings(steps=[a_step(**changes)], **around)

    assert [wakeup.waker for wakeup in wakeups(a_run(), surroundings)] == wakers


def test_a_timer_and_the_outside_world_count() -> None:
    """Each is a source of its own."""
    timer = TimerRecord(path="2", fire_at=NOW, due_at=NOW)
    signal = Wakeup("signal", "signal 'go'")

    found = wakeups(a_run(), Surroundings(timers=[timer], outside=[signal]))

    assert found == [Wakeup("timer", "timer 2"), signal]


def test_a_signal_is_awaited_until_it_is_delivered() -> None:
    """One that came after the suspension is owed by somebody inside."""
    waiting = ev.ExecutionAwaiting(
        waiting_on=["0"], kind="signal", signals=[ev.SignalWait(promise_id="0", signal_name="go")]
    )
    delivered = ev.SignalDelivered(signal_name="go", payload=None, delivery_id=1)
    other = ev.SignalDelivered(signal_name="stop", payload=None, delivery_id=1)

    assert outside_waits(entries(waiting)) == [Wakeup("signal", "signal 'go'")]
    assert outside_waits(entries(waiting, other)) == [Wakeup("signal", "signal 'go'")]
    assert outside_waits(entries(waiting, delivered)) == []
    assert outside_waits(entries(delivered, waiting)) == [Wakeup("signal", "signal 'go'")]


def test_a_promise_is_awaited_until_it_is_resolved() -> None:
    """And only if the run is suspended on it, or on more than it can list."""
    created = ev.PromiseCreated(promise_id="0", name="answer")
    resolved = ev.PromiseResolved(promise_id="0", result=ev.Result(ok=1))
    on_it = ev.ExecutionAwaiting(waiting_on=["0"], kind="single")
    on_other = ev.ExecutionAwaiting(waiting_on=["1"], kind="single")
    on_many = ev.ExecutionAwaiting(waiting_on=["1"], kind="all", truncated=True)
    answer = [Wakeup("promise", "promise 'answer'")]

    assert outside_waits(entries(created, on_it)) == answer
    assert outside_waits(entries(created, on_it, resolved)) == []
    assert outside_waits(entries(created, on_other)) == []
    assert outside_waits(entries(created, on_many)) == answer


def test_a_run_that_was_resumed_waits_for_nothing() -> None:
    """Nor does one whose end of the journal shows no suspension."""
    waiting = ev.ExecutionAwaiting(
        waiting_on=["0"], kind="signal", signals=[ev.SignalWait(promise_id="0", signal_name="go")]
    )

    assert outside_waits(entries(waiting, ev.ExecutionResumed())) == []
    assert outside_waits([]) == []
