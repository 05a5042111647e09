"""Every topology we declare fits RabbitMQ 3.10 and 4.x, and what does not fit is found."""

from __future__ import annotations

import re

import msgspec
import pytest

from tidewheel.broker.rabbitmq.declarations import NO_LIMIT, QueueDeclaration, queue_declarations
from tidewheel.broker.rabbitmq.lint import breaches, queue_breaches
from tidewheel.broker.topology import (
    Binding,
    Exchange,
    Queue,
    Topology,
    reply_topology,
    sticky_topology,
    work_queue,
    work_topology,
)

#: The longest names there may be: namespaces and queues have 100 characters, workers and clients less.
LONG = "x" * 100
OURS = {
    "work": work_topology("default", ["default", "gpu"]),
    "work of a namespace": work_topology(LONG, [LONG]),
    "sticky": sticky_topology("default", "host-1-abcdef", "default"),
    "sticky of a namespace": sticky_topology(LONG, LONG, LONG),
    "reply": reply_topology(LONG),
}
KNOWN = {queue.name for topology in OURS.values() for queue in topology.queues}


@pytest.mark.parametrize("name", OURS)
def test_our_own_topologies_break_no_rule(name: str) -> None:
    """Nothing that either version refuses, and nothing that somebody regrets."""
    assert breaches(OURS[name], known_queues=KNOWN) == []


def test_what_we_declare_is_what_was_meant() -> None:
    """Work is replicated and limited, whatever the defaults; what belongs to one process is cheap."""
    declared = {
        queue.name: queue.arguments
        for name in ("work", "sticky", "reply")
        for queue in queue_declarations(OURS[name])
    }

    work = work_queue("default", "gpu")
    assert declared[work] == {
        "x-queue-type": "quorum",
        "x-delivery-limit": 2,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": f"{work}.dlq",
    }
    assert declared[f"{work}.dlq"] == {"x-queue-type": "quorum", "x-delivery-limit": NO_LIMIT}
    assert declared["tidewheel.sticky.host-1-abcdef"] == {
        "x-queue-type": "classic",
        "x-message-ttl": 5_000,
        "x-expires": 100_000,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": work_queue("default", "default"),
    }
    assert declared[f"tidewheel.reply.{LONG}"] == {
        "x-queue-type": "classic",
        "x-message-ttl": 60_000,
        "x-expires": 600_000,
    }


GOOD = QueueDeclaration(name="q", arguments={"x-queue-type": "quorum", "x-delivery-limit": 2})


def with_arguments(**arguments: object) -> QueueDeclaration:
    """Return a good declaration with these arguments added; None takes one away."""
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    merged = {name: value for name, value in (GOOD.arguments | named).items() if value is not None}
    return msgspec.structs.replace(GOOD, arguments=merged)


@pytest.mark.parametrize(
    ("declaration", "says"),
    [
        (msgspec.structs.replace(GOOD, name=""), "0 bytes"),
        (msgspec.structs.replace(GOOD, name="ä" * 128), "256 bytes"),
        (msgspec.structs.replace(GOOD, name="amq.mine"), "RabbitMQ's own"),
        (msgspec.structs.replace(GOOD, name="a\nb"), "nobody can see"),
        (msgspec.structs.replace(GOOD, durable=False), "durable"),
        (msgspec.structs.replace(GOOD, exclusive=True), "not exclusive"),
        (msgspec.structs.replace(GOOD, auto_delete=True), "not deleted with its consumers"),
        (with_arguments(x_queue_type=None), "the vhost decides"),
        (with_arguments(x_queue_type="stream"), "quorum or classic"),
        (with_arguments(x_max_priority=5), "x-max-priority"),
        (with_arguments(x_queue_mode="lazy"), "x-queue-mode"),
        (with_arguments(x_queue_type="classic", x_delivery_limit=None, x_queue_mode="lazy"), "x-queue-mode"),
        (with_arguments(x_queue_type="classic"), "classic queue has no x-delivery-limit"),
        (with_arguments(x_delivery_limit=None), "RabbitMQ 4 would take 20"),
        (with_arguments(x_delivery_limit=-1), "from 0 up"),
        (with_arguments(x_message_ttl=-1), "x-message-ttl"),
        (with_arguments(x_message_ttl=1.5), "x-message-ttl"),
        (with_arguments(x_message_ttl=2**32), "x-message-ttl"),
        (with_arguments(x_expires=0), "x-expires"),
        (with_arguments(x_dead_letter_routing_key="dlq"), "needs x-dead-letter-exchange"),
        (with_arguments(x_dead_letter_strategy="at-least-once"), "reject-publish"),
    ],
)
def test_what_a_version_refuses_is_found(declaration: QueueDeclaration, says: str) -> None:
    """Before any broker is asked."""
    found = [breach for breach in queue_breaches(declaration) if breach.is_refused]

    assert len(found) == 1
    assert says in str(found[0])


def test_a_good_declaration_breaks_no_rule() -> None:
    """The examples above are broken by what they change, not by what they share."""
    assert list(queue_breaches(GOOD)) == []


@pytest.mark.parametrize(
    ("topology", "says"),
    [
        (Topology(queues=(Queue(name="q", kind="classic", ttl_s=6, expires_s=59),)), "10 times as long"),
        (Topology(queues=(Queue(name="q", kind="classic", expires_s=59),)), "lost with it"),
        (Topology(queues=(Queue(name="q", ttl_s=1, expires_s=10),)), "use classic"),
        (Topology(queues=(Queue(name="q", dead_letter_queue="nowhere"),)), "'nowhere'.* nobody declares"),
    ],
)
def test_what_somebody_regrets_is_found(topology: Topology, says: str) -> None:
    """RabbitMQ takes these, and loses messages or connections by them."""
    (found,) = breaches(topology, known_queues={"q"})

    assert not found.is_refused
    assert re.search(says, str(found))


def test_dead_letters_in_a_circle_are_found() -> None:
    """RabbitMQ drops a message that comes back to a queue it died in."""
    circle = Topology(queues=(Queue(name="a", dead_letter_queue="b"), Queue(name="b", dead_letter_queue="a")))

    found = breaches(circle, known_queues={"a", "b"})

    assert [str(breach).count("circle") for breach in found] == [1, 1]


def test_exchanges_and_bindings_have_limits_too() -> None:
    """Names of 127 bytes for exchanges, keys of 255."""
    topology = Topology(
        exchanges=(Exchange("e" * 128), Exchange("e" * 127)),
        bindings=(Binding("e", "q", "k" * 256), Binding("e", "q", "k" * 255)),
    )

    assert [breach.problem for breach in breaches(topology)] == [
        "its name has 128 bytes; it may have 1 to 127",
        "its key is too long",
    ]
