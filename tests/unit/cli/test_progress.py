"""What a watcher is told of a run as it goes."""

from __future__ import annotations

import datetime as dt

import pytest

from tidewheel.cli.timeline import RunProgress, progress_line
from tidewheel.cli.timeline.text import columns
from tidewheel.journal import events as ev

T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
RESET = ev.Error(type="ConnectionError", message="reset by peer", retryable=True)
STARTED = ev.ExecutionStarted(workflow="fulfil")
CHARGE = ev.InvokeScheduled(promise_id="0", function_name="charge")
MAIL = ev.InvokeScheduled(promise_id="1", function_name="send", key="mail")
APPROVAL = ev.SignalWait(promise_id="2", signal_name="approval")


def at(seconds: float) -> dt.datetime:
    """Return the time *seconds* after the start."""
    return T0 + dt.timedelta(seconds=seconds)


def journal(*events: ev.Event) -> list[ev.Entry]:
    """Return *events* as a journal with one entry a second."""
    return [ev.Entry(seq, at(seq), event) for seq, event in enumerate(events)]


def told(*events: ev.Event) -> str | None:
    """Return the story of the last of *events*."""
    progress = RunProgress("order-42")
    return [progress.story(entry) for entry in journal(*events)][-1]


def test_the_line_says_how_a_run_stands() -> None:
    """Counts, what it waits for, and the time since its start."""
    entries = journal(
        STARTED,
        CHARGE,
        MAIL,
        ev.TimerScheduled(promise_id="3", duration=60, fire_at=at(63)),
        ev.ExecutionAwaiting(waiting_on=["2", "3"], kind="any", signals=[APPROVAL]),
        ev.InvokeStarted(promise_id="0", attempt=1),
        ev.InvokeRetrying(promise_id="0", failed_attempt=1, error=RESET, retry_at=at(15.2)),
        ev.InvokeStarted(promise_id="1", attempt=1),
    )

    line = progress_line(entries, at(12), "order-42")

    assert line == (
        "order-42  RUNNING  1 step running, 1 waiting (retry in 3.2 s)"
        "  waits for signal 'approval'  timer in 51.0 s  00:12"
    )


def test_the_line_of_an_ended_run_says_how_it_ended() -> None:
    """The clock stands still, whatever the time is now."""
    done = ev.InvokeCompleted(promise_id="0", attempt=1, result=ev.NOTHING)
    entries = journal(STARTED, CHARGE, done, ev.ExecutionCompleted(result=ev.Result(ok="rc-1")))

    line = progress_line(entries, at(999), "order-42")

    assert line == 'order-42  COMPLETED  1 step done  completed: "rc-1"  00:03'


def test_a_signal_that_is_waited_for_no_longer_is_not_named() -> None:
    """A wait may stay open after the code went on without it."""
    entries = journal(
        STARTED,
        ev.ExecutionAwaiting(waiting_on=["2"], kind="single", signals=[APPROVAL]),
        ev.ExecutionResumed(applied=[]),
        ev.PromiseCreated(promise_id="4", name="bank"),
        ev.ExecutionAwaiting(waiting_on=["4"], kind="single", signals=[APPROVAL]),
    )

    line = progress_line(entries, at(4), "r")

    assert line == "r  RUNNING  no steps yet  waits for promise 'bank'  00:04"


def test_a_run_that_is_being_cancelled_says_so() -> None:
    """Its code may still clean up."""
    line = progress_line(journal(STARTED, ev.CancelRequested()), at(1), "r")

    assert line == "r  RUNNING (cancelling)  no steps yet  00:01"


def test_the_line_is_cut_to_the_width() -> None:
    """A watcher rewrites one line of the terminal; it must not wrap."""
    progress = RunProgress("订单-42")
    for entry in journal(STARTED, CHARGE):
        progress.observe(entry)

    line = progress.line(at(3), 20)

    assert line == "订单-42  RUNNING ..."
    assert columns(line) == 20


def test_nothing_observed_is_still_a_line() -> None:
    """A watcher may be there before the run."""
    assert RunProgress("r").line(at(0)) == "r  PENDING  no steps yet"


@pytest.mark.parametrize(
    ("events", "story"),
    [
        ([STARTED], "fulfil started"),
        ([ev.ExecutionStarted(workflow="fulfil", admission="approval")], "fulfil waits for approval"),
        ([STARTED, ev.ExecutionContinued(input=[2]), STARTED], "fulfil goes on in segment 2"),
        ([STARTED, ev.ExecutionContinued(input=[2])], "continues as new with [2]"),
        ([STARTED, CHARGE], None),
        ([STARTED, CHARGE, ev.InvokeStarted(promise_id="0", attempt=1)], "charge started (attempt 1)"),
        ([STARTED, MAIL, ev.InvokeStarted(promise_id="1", attempt=2)], "mail started (attempt 2)"),
        (
            [CHARGE, ev.InvokeRetrying(promise_id="0", failed_attempt=1, error=RESET, retry_at=at(3))],
            "charge failed: ConnectionError: reset by peer; retry in 2.0 s",
        ),
        (
            [CHARGE, ev.InvokeRetrying(promise_id="0", failed_attempt=1, error=RESET)],
            "charge failed: ConnectionError: reset by peer; parked until an operator decides",
        ),
        (
            [CHARGE, ev.InvokeCompleted(promise_id="0", attempt=3, result=ev.Result(error=RESET))],
            "charge failed: ConnectionError: reset by peer (3 attempts)",
        ),
        (
            [CHARGE, ev.InvokeCompleted(promise_id="0", attempt=1, result=ev.Result(ok={"id": 7}))],
            'charge completed after 1.0 s: {"id":7}',
        ),
        (
            [CHARGE, ev.InvokeCompleted(promise_id="0", attempt=1, result=ev.NOTHING)],
            "charge completed after 1.0 s",
        ),
        (
            [CHARGE, ev.StepSkipped(promise_id="0", result=ev.NOTHING, reason="paid by hand")],
            "charge was skipped: paid by hand",
        ),
        (
            [CHARGE, ev.StepRetryRequested(promise_id="0", logical_attempt=2)],
            "charge is to be tried again (logical attempt 2)",
        ),
        ([ev.TimerScheduled(promise_id="0", duration=90)], "timer of 1 min 30 s set"),
        (
            [ev.TimerScheduled(promise_id="0", duration=9), ev.TimerFired(promise_id="0")],
            "timer 9.0 s fired",
        ),
        ([ev.SignalDelivered(signal_name="approval", delivery_id=1)], "signal 'approval' arrived"),
        (
            [ev.SignalDelivered(signal_name="approval", delivery_id=1, payload=True)],
            "signal 'approval' arrived: true",
        ),
        (
            [ev.SignalRejected(signal_id="s", signal_name="stop", reason="not yours")],
            "signal 'stop' was refused: not yours",
        ),
        (
            [STARTED, ev.ExecutionAwaiting(waiting_on=["2"], kind="single", signals=[APPROVAL])],
            "waits for signal 'approval'",
        ),
        (
            [STARTED, *[ev.ExecutionAwaiting(waiting_on=["2"], kind="single", signals=[APPROVAL])] * 2],
            None,
        ),
        ([ev.PromiseCreated(promise_id="0", name="bank")], "waits for promise 'bank'"),
        (
            [
                ev.PromiseCreated(promise_id="0", name="bank"),
                ev.PromiseResolved(promise_id="0", result=ev.Result(ok=[1])),
            ],
            "promise 'bank' resolved: [1]",
        ),
        (
            [
                ev.PromiseCreated(promise_id="0", name="bank"),
                ev.PromiseResolved(promise_id="0", result=ev.Result(error=RESET)),
            ],
            "promise 'bank' rejected: ConnectionError: reset by peer",
        ),
        ([STARTED, ev.RunPaused()], "paused"),
        ([STARTED, ev.CancelRequested(reason="too late")], "cancel requested: too late"),
        ([STARTED, ev.ExecutionCompleted(result=ev.Result(ok=42))], "completed: 42"),
        ([STARTED, ev.ExecutionFailed(error=RESET)], "failed: ConnectionError: reset by peer"),
        ([STARTED, ev.ExecutionCancelled(reason="too late")], "cancelled: too late"),
        ([STARTED, ev.Recorded(name="OrderPaid", data={"n": 1})], 'recorded OrderPaid: {"n":1}'),
        ([STARTED, ev.RandomGenerated(promise_id="0", value=0.5)], None),
        ([ev.InvokeStarted(promise_id="7", attempt=1)], "promise 7 started (attempt 1)"),
    ],
)
def test_each_thing_worth_telling_has_its_sentence(events: list[ev.Event], story: str | None) -> None:
    """What only replay needs is not told."""
    assert told(*events) == story


def test_a_sentence_is_short_and_safe() -> None:
    """Payloads and messages come from anywhere: they are cut, and what a terminal obeys is escaped."""
    long = told(STARTED, ev.ExecutionCompleted(result=ev.Result(ok="x" * 10**6)))
    evil = told(STARTED, ev.ExecutionFailed(error=ev.Error(type="E", message="a\x1b]0;b\x07\nc")))

    assert long == 'completed: "' + "x" * 56 + "..."
    assert evil == "failed: E: a\\x1b]0;b\\x07\\nc"


def test_an_entry_seen_before_changes_nothing() -> None:
    """A watcher that reconnects reads from the start again."""
    entries = journal(STARTED, CHARGE, ev.InvokeCompleted(promise_id="0", attempt=1, result=ev.NOTHING))
    progress = RunProgress("r")
    for entry in entries:
        progress.observe(entry)
    line = progress.line(at(9))

    again = [progress.story(entry) for entry in entries[:-1]]

    assert again == [None, None]
    assert progress.line(at(9)) == line


def test_what_is_settled_is_not_kept() -> None:
    """A run of any length is watched in the memory that its open steps take."""
    progress = RunProgress("r")
    pair: list[ev.Event] = [CHARGE, ev.InvokeCompleted(promise_id="0", attempt=1, result=ev.NOTHING)]

    for entry in journal(STARTED, *pair * 100):
        progress.observe(entry)

    assert progress._run.open == {}
    assert "100 steps done" in progress.line(at(0))
