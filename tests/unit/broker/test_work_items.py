"""What our processes tell each other can be read, or is poison; and the queues have their fixed names."""

from __future__ import annotations

import pytest

from tidewheel.broker.errors import PoisonMessage
from tidewheel.broker.message import Message
from tidewheel.broker.topology import (
    Queue,
    dead_letter_queue,
    reply_queue,
    sticky_topology,
    work_queue,
    work_topology,
)
from tidewheel.broker.work_items import (
    Item,
    RunEnded,
    RunHint,
    RunsEnded,
    TaskHint,
    message_of,
    read_item,
    to_workers,
)


@pytest.mark.parametrize(
    "item",
    [
        RunHint(namespace="default", run_id="r"),
        RunHint(namespace="default", run_id="r", alone=True),
        TaskHint(namespace="n", run_id="r", path="1.0", attempt=2),
        RunsEnded(runs=[RunEnded(namespace="n", run_id="Ä")]),
    ],
)
def test_an_item_is_read_as_it_was_written(item: Item) -> None:
    """Writing and reading are inverse."""
    assert read_item(message_of(item)) == item


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b"\xff",
        b"[]",
        b"{}",
        b'{"kind": "dance"}',
        b'{"kind": "run", "namespace": "n"}',
        b'{"kind": "run", "namespace": "n", "run_id": 5}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_item_is_poison(body: bytes) -> None:
    """Whatever the bytes, reading ends in an item or in ``PoisonMessage``."""
    with pytest.raises(PoisonMessage, match="not a work item"):
        read_item(Message(body=body, message_id="1"))


def test_each_message_has_an_id_of_its_own() -> None:
    """Two hints for the same run are two messages."""
    hint = RunHint(namespace="default", run_id="r")

    assert message_of(hint).message_id != message_of(hint).message_id


def test_the_names_of_queues_are_fixed() -> None:
    """Users bind and watch them: the default namespace is not in the name, others are."""
    assert work_queue("default", "gpu") == "tidewheel.work.gpu"
    assert work_queue("team", "gpu") == "tidewheel.team.work.gpu"
    assert dead_letter_queue("tidewheel.work.gpu") == "tidewheel.work.gpu.dlq"
    assert reply_queue("c1") == "tidewheel.reply.c1"
    hint = to_workers(RunHint(namespace="team", run_id="r"), "gpu")
    assert (hint.exchange, hint.routing_key) == ("", "tidewheel.team.work.gpu")


def test_work_queues_have_dead_letters_and_sticky_ones_fall_back() -> None:
    """Dead letters do not expire; what a worker does not take goes to everybody; its queue outlives that."""
    work, dead = work_topology("default", ["a"]).queues[:2]
    (sticky,) = sticky_topology("default", "w1", "a").queues

    assert dead == Queue(name=work.dead_letter_queue or "")
    assert sticky.dead_letter_queue == work.name
    assert sticky.ttl_s is not None
    assert sticky.expires_s is not None
    assert sticky.expires_s >= 10 * sticky.ttl_s
