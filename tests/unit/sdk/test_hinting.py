"""What is published after a commit."""

from __future__ import annotations

import datetime as dt

from tidewheel.broker.work_items import RunEnded, RunHint, RunsEnded, TaskHint, read_item
from tidewheel.journal.events import ExecutionCompleted, Result
from tidewheel.sdk.hinting import EVENT_MAX, TOLD_MAX, event_of, publications
from tidewheel.store.append import Appended, Ended, Hint
from tidewheel.store.records import RunRef

RUN = RunRef("blue", "order-42")
NOW = dt.datetime(2025, 1, 31, tzinfo=dt.UTC)


def test_each_hint_goes_to_the_workers_of_its_queue() -> None:
    """A run's hint, one of a run to be tried alone and a step's hint are different messages."""
    hints = [
        Hint(run=RUN, queue="default"),
        Hint(run=RUN, queue="default", alone=True),
        Hint(run=RUN, queue="heavy", path="3", attempt=2),
    ]

    wanted = publications([Appended(run=RUN, now=NOW, hints=hints)])

    assert [(each.routing_key, read_item(each.message)) for each in wanted] == [
        ("tidewheel.blue.work.default", RunHint(namespace="blue", run_id="order-42")),
        ("tidewheel.blue.work.default.alone", RunHint(namespace="blue", run_id="order-42", alone=True)),
        ("tidewheel.blue.work.heavy", TaskHint(namespace="blue", run_id="order-42", path="3", attempt=2)),
    ]
    assert len({each.message.message_id for each in wanted}) == 3
    assert all(each.lasting for each in wanted)


def test_whoever_waits_is_told_but_not_by_itself() -> None:
    """A client that reads in the answer that the run has ended needs no message."""
    answer = Appended(run=RUN, now=NOW, ended=[Ended(run=RUN, last_seq=7, reply_to=("mine", "yours"))])

    everybody, others = publications([answer]), publications([answer], own_queue="mine")

    assert [each.routing_key for each in everybody] == ["mine", "yours"]
    assert [each.routing_key for each in others] == ["yours"]
    assert not others[0].lasting
    told = RunEnded(namespace="blue", run_id="order-42", last_seq=7)
    assert read_item(others[0].message) == RunsEnded(runs=[told])


def test_whoever_waits_for_several_runs_is_told_of_them_in_one_message() -> None:
    """With the events that ended them, unless those are large; a message has a bound."""
    results = ["small", "x" * EVENT_MAX, *range(TOLD_MAX)]
    answers = [
        Appended(
            run=RUN,
            now=NOW,
            ended=[
                Ended(
                    run=RunRef("blue", f"r{number}"),
                    last_seq=number,
                    reply_to=("mine",),
                    event=ExecutionCompleted(result=Result(ok=result)),
                )
            ],
        )
        for number, result in enumerate(results)
    ]

    wanted = publications(answers)

    told = [read_item(each.message) for each in wanted]
    assert all(isinstance(each, RunsEnded) for each in told)
    runs = [run for each in told if isinstance(each, RunsEnded) for run in each.runs]
    assert [len(each.runs) for each in told if isinstance(each, RunsEnded)] == [TOLD_MAX, 2]
    assert [run.last_seq for run in runs] == list(range(len(results)))
    assert event_of(runs[0]) == ExecutionCompleted(result=Result(ok="small"))
    assert event_of(runs[1]) is None


def test_a_hint_for_a_start_carries_the_run() -> None:
    """As JSON of the store's own making, and nothing where there is none."""
    hints = [Hint(run=RUN, queue="default", sketch=b'{"a":1}'), Hint(run=RUN, queue="default")]

    items = [read_item(each.message) for each in publications([Appended(run=RUN, now=NOW, hints=hints)])]

    assert [bytes(item.sketch) for item in items if isinstance(item, RunHint)] == [b'{"a":1}', b""]


def test_nothing_owed_is_nothing_published() -> None:
    """Most facts find a hint under way."""
    assert publications([Appended(run=RUN, now=NOW)]) == []
