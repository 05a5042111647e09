"""What is published after a commit."""

from __future__ import annotations

import datetime as dt

from tidewheel.broker.work_items import RunEnded, RunHint, TaskHint, read_item
from tidewheel.sdk.hinting import publications
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

    wanted = publications(Appended(run=RUN, now=NOW, hints=hints))

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

    everybody, others = publications(answer), publications(answer, own_queue="mine")

    assert [each.routing_key for each in everybody] == ["mine", "yours"]
    assert [each.routing_key for each in others] == ["yours"]
    assert not others[0].lasting
    assert read_item(others[0].message) == RunEnded(namespace="blue", run_id="order-42", last_seq=7)


def test_nothing_owed_is_nothing_published() -> None:
    """Most facts find a hint under way."""
    assert publications(Appended(run=RUN, now=NOW)) == []
