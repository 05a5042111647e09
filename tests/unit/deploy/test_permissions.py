"""What each role may do in RabbitMQ, against the names that the code gives its queues.

RabbitMQ asks for *configure* to declare or delete a queue, for *read* to consume it or to declare it with a
dead-letter exchange, and for *write* on the exchange to publish. ``tests/scenario/test_definitions.py`` asks
a real node.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.unit.deploy.reading import DEFINITIONS, IS_CHECKOUT
from tidewheel.broker.topology import (
    ALERTS,
    COMMANDS,
    EVENTS,
    SHARDS,
    Topology,
    bus_topology,
    commands_topology,
    projector_topology,
    reply_topology,
    sticky_topology,
    work_topology,
)
from tidewheel.workers.lifeline import new_worker_id

pytestmark = pytest.mark.skipif(not IS_CHECKOUT, reason="an unpacked sdist has no folders at the root")

NAMESPACES = ("default", "blue", "Team-7_x")
QUEUES = ("default", "gpu", "Slow_1-2")
#: How RabbitMQ calls the exchange without a name where it asks for permission.
NAMELESS = "amq.default"
FOREIGN = (
    "orders",
    "tidewheel",
    "tidewheel.",
    "tidewheel.work",
    "tidewheel.work.",
    "tidewheel.work.a.b",
    "tidewheel.events.more",
    "tidewheel.commands.",
    "tidewheel.commands.dlq.more",
    "tidewheel.projector",
    "xtidewheel.work.default",
    "tidewheelxwork.default",
    "tidewheel.work.default.dlq.more",
    "amq.topic",
    "amq.gen-x",
)


def definitions() -> dict[str, Any]:
    """Return the committed definitions."""
    found = json.loads(DEFINITIONS.read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def may(role: str, kind: str, name: str) -> bool:
    """Tell whether *role* may do *kind* to the queue or exchange called *name*."""
    (permission,) = [found for found in definitions()["permissions"] if found["user"] == f"tidewheel-{role}"]
    return re.search(permission[kind], name) is not None


def check_declares(role: str, topology: Topology) -> None:
    """Check that *role* may declare *topology*."""
    for queue in topology.queues:
        assert may(role, "configure", queue.name), queue.name
        if queue.dead_letter_queue is not None:
            assert may(role, "read", queue.name), queue.name
            assert may(role, "write", NAMELESS)


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("role", ["worker", "keeper"])
def test_workers_and_keepers_may_declare_the_work_queues(role: str, namespace: str) -> None:
    """Whoever comes first makes them, in any namespace."""
    check_declares(role, work_topology(namespace, QUEUES))


def test_a_worker_may_declare_and_read_its_own_queue() -> None:
    """It is named after the host, which may have dots in its name."""
    for worker in (new_worker_id(), "host.example.net-7-0a1b2c3d"):
        topology = sticky_topology("default", worker, "default")

        check_declares("worker", topology)
        assert all(may("worker", "read", queue.name) for queue in topology.queues)


def test_a_client_may_declare_and_read_its_replies() -> None:
    """And nothing else: that its hint finds no queue is no harm, the keeper gives it again."""
    topology = reply_topology("0123456789abcdef0123456789abcdef")

    check_declares("client", topology)
    assert all(may("client", "read", queue.name) for queue in topology.queues)
    for queue in work_topology("default", QUEUES).queues:
        assert not may("client", "configure", queue.name)
        assert not may("client", "read", queue.name)


def test_dead_letters_are_for_the_keeper() -> None:
    """A worker makes the queue and does not read it; nobody reads what nobody can read, but people."""
    for namespace in NAMESPACES:
        names = [queue.name for queue in work_topology(namespace, QUEUES).queues]
        dead = [name for name in names if name.endswith(".dlq")]
        poison = [name for name in names if name.endswith(".poison")]

        assert dead
        assert poison
        assert all(may("keeper", "read", name) for name in dead)
        assert not any(may("worker", "read", name) for name in dead)
        assert not any(may(role, "read", name) for role in ("worker", "keeper", "client") for name in poison)


def test_a_worker_does_not_read_replies_nor_a_keeper_a_workers_own_queue() -> None:
    """Each has what its work needs."""
    reply, sticky = (
        reply_topology("ab").queues[0].name,
        sticky_topology("default", "w", "default").queues[0].name,
    )

    assert not may("worker", "read", reply)
    assert not may("worker", "configure", reply)
    assert not may("keeper", "read", reply)
    assert not may("keeper", "read", sticky)
    assert not may("keeper", "configure", sticky)


@pytest.mark.parametrize("kind", ["configure", "read", "write"])
@pytest.mark.parametrize("role", ["worker", "keeper", "relay", "projector", "client"])
def test_no_role_may_touch_anything_else(role: str, kind: str) -> None:
    """Other people's queues, and what other parts of Tidewheel have, are not theirs."""
    assert [name for name in FOREIGN if may(role, kind, name)] == []


def test_workers_take_commands_and_clients_give_them() -> None:
    """Binding the queue asks for *write* on it and *read* on its exchange. Dead commands are for people."""
    topology = commands_topology()
    (dead,) = [queue.name for queue in topology.queues if queue.name != COMMANDS]

    check_declares("worker", topology)
    assert [may("worker", kind, COMMANDS) for kind in ("configure", "write", "read")] == [True] * 3
    assert [may("client", kind, COMMANDS) for kind in ("configure", "write", "read")] == [False, True, False]
    assert not any(may("keeper", kind, COMMANDS) for kind in ("configure", "write", "read"))
    assert not any(may(role, "read", dead) for role in ("worker", "keeper", "client"))


@pytest.mark.parametrize("role", ["worker", "keeper", "client"])
def test_every_role_publishes_to_queues_and_commands_alone(role: str) -> None:
    """Hints go straight to a queue, over the exchange without a name."""
    (permission,) = [found for found in definitions()["permissions"] if found["user"] == f"tidewheel-{role}"]
    with_commands = r"^(amq\.default|tidewheel\.commands)$"

    assert permission["write"] == (r"^amq\.default$" if role == "keeper" else with_commands)
    assert permission["vhost"] == "tidewheel"


def test_a_relay_publishes_to_the_bus_and_does_nothing_else() -> None:
    """It makes the exchanges; whose queues are bound to them is not its business."""
    for exchange in bus_topology().exchanges:
        assert [may("relay", kind, exchange.name) for kind in ("configure", "write", "read")] == [
            True,
            True,
            False,
        ]
        assert not any(may(role, "write", exchange.name) for role in ("worker", "keeper", "client"))
    assert not may("relay", "write", NAMELESS)
    assert not any(may("relay", "read", queue.name) for queue in work_topology("default", QUEUES).queues)


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_projector_has_its_queues_and_hears_events(namespace: str) -> None:
    """It binds its queues to the events, consumes them, and publishes dead letters and alerts."""
    topology = projector_topology(namespace, SHARDS)

    check_declares("projector", Topology(queues=topology.queues))
    for binding in topology.bindings:
        assert may("projector", "write", binding.queue), binding.queue
        assert may("projector", "read", binding.queue), binding.queue
    assert [may("projector", kind, EVENTS) for kind in ("configure", "write", "read")] == [True, False, True]
    assert may("projector", "write", ALERTS)


def test_the_committed_users_cannot_log_in() -> None:
    """Without a hash there is no password that fits; and none of them administers anything."""
    users = definitions()["users"]

    roles = ("worker", "keeper", "relay", "projector", "client")
    assert [user["name"] for user in users] == [f"tidewheel-{role}" for role in roles]
    assert {user["password_hash"] for user in users} == {""}
    assert [user["tags"] for user in users] == [[], [], [], [], []]


def test_the_definitions_have_only_what_old_and_new_brokers_know() -> None:
    """3.10 and 4.x read the same file; queues are declared by those who use them."""
    found = definitions()

    assert found.keys() == {"vhosts", "users", "permissions", "policies", "queues", "exchanges", "bindings"}
    assert found["vhosts"] == [{"name": "tidewheel"}]
    assert [found[kind] for kind in ("policies", "queues", "exchanges", "bindings")] == [[], [], [], []]
