"""Exchanges, queues and bindings as data, and the names of ours.

Declaring is idempotent: every process declares what it uses. A queue declared again with other
arguments is refused, since one of the two would not get what it asked for.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Literal

import msgspec

#: How often a message may be delivered before it becomes a dead letter.
DELIVERY_LIMIT = 3
#: A command is the only word of what it asks for, unlike a hint: it must not die with workers that died of
#: something else. From its third delivery on none of its run's code is executed on its account.
COMMAND_DELIVERY_LIMIT = 20
#: The exchange that takes commands from anybody, the queue that keeps them for the workers, and their keys.
COMMANDS = "tidewheel.commands"
COMMAND_KEYS = ("start", "signal", "cancel")
#: The exchange on which everybody is told what happened, and the one for what people should look at.
EVENTS = "tidewheel.events"
ALERTS = "tidewheel.alerts"
#: The runs of a namespace are divided among so many queues of projectors: a run is always in the same one.
#: Whoever publishes an event and whoever consumes it have to agree on it, so it is the same everywhere.
SHARDS = 8
#: An event that comes back this often has killed projectors, or they died of something else; what it says is
#: in the journal in any case.
EVENT_DELIVERY_LIMIT = 20
#: A hint in a worker's own queue goes back to the shared queue after this long.
STICKY_TTL_S = 5.0


class Exchange(msgspec.Struct, frozen=True):
    """Routes by key to the queues bound to it; ``topic`` knows ``*`` (a word) and ``#`` (any words)."""

    name: str
    type: Literal["direct", "topic", "fanout"] = "direct"


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A durable queue, first in first out.

    ``kind`` is RabbitMQ's: a ``quorum`` queue is replicated and counts deliveries; a ``classic`` one is cheap
    to make and to lose, and keeps to no ``delivery_limit``. Other brokers have one kind and no need of two.

    A message that comes back from its delivery number ``delivery_limit``, was buried, or waited longer than
    ``ttl_s`` goes to ``dead_letter_queue``, or is dropped where there is none. A queue that nobody consumed
    for ``expires_s`` seconds is deleted. With ``single_consumer`` one of its consumers is given messages, and
    another one when that has left: so one process takes them in order.
    """

    name: str
    kind: Literal["quorum", "classic"] = "quorum"
    delivery_limit: int | None = None
    dead_letter_queue: str | None = None
    ttl_s: float | None = None
    expires_s: float | None = None
    single_consumer: bool = False


class Binding(msgspec.Struct, frozen=True):
    """Messages that *exchange* gets under *key* go into *queue*."""

    exchange: str
    queue: str
    key: str = ""


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """What a process needs to exist before it publishes or consumes."""

    exchanges: tuple[Exchange, ...] = ()
    queues: tuple[Queue, ...] = ()
    bindings: tuple[Binding, ...] = ()


def work_queue(namespace: str, queue: str) -> str:
    """The name of the queue that carries work items for *queue*."""
    prefix = "tidewheel" if namespace == "default" else f"tidewheel.{namespace}"
    return f"{prefix}.work.{queue}"


def dead_letter_queue(queue: str) -> str:
    """The name of the queue that takes the dead letters of *queue*."""
    return f"{queue}.dlq"


def alone_queue(queue: str) -> str:
    """The name of the queue for runs of *queue* that are to be tried alone.

    One at a time is taken from it, so that only the run that is being tried dies with its worker.
    """
    return f"{queue}.alone"


def poison_queue(namespace: str) -> str:
    """The name of the queue that keeps dead letters nobody can read, for people to look at."""
    return "tidewheel.poison" if namespace == "default" else f"tidewheel.{namespace}.poison"


def sticky_queue(worker: str) -> str:
    """The name of a worker's own queue: hints for runs whose tasks it is executing."""
    return f"tidewheel.sticky.{worker}"


def reply_queue(client: str) -> str:
    """The name of the queue in which a client is told that a run has ended."""
    return f"tidewheel.reply.{client}"


def is_for_a_client(address: str) -> bool:
    """Tell whether *address* names a client's queue of replies; a client that has left takes none."""
    return reply_queue("") in address


def destination(queue: str, exchange: str = "") -> str:
    """Where a message goes, as figures tell it: its exchange or queue; those of processes are as one."""
    if exchange:
        return exchange
    for own in (sticky_queue(""), reply_queue("")):
        if queue.startswith(own):
            return own.rstrip(".")
    return queue


def work_topology(namespace: str, queues: Iterable[str]) -> Topology:
    """The work queues of a namespace, each with its dead letters and its queue of runs to be tried alone."""
    names = [work_queue(namespace, queue) for queue in queues]
    work, alone = (
        [
            Queue(name=of(name), delivery_limit=DELIVERY_LIMIT, dead_letter_queue=dead_letter_queue(name))
            for name in names
        ]
        for of in (str, alone_queue)
    )
    dead = [Queue(name=dead_letter_queue(name)) for name in names]
    return Topology(queues=(*work, *dead, *alone, Queue(name=poison_queue(namespace))))


def commands_topology() -> Topology:
    """What takes commands of all namespaces; those that cannot be followed are kept for people."""
    dead = dead_letter_queue(COMMANDS)
    return Topology(
        exchanges=(Exchange(COMMANDS),),
        queues=(
            Queue(name=COMMANDS, delivery_limit=COMMAND_DELIVERY_LIMIT, dead_letter_queue=dead),
            Queue(name=dead),
        ),
        bindings=tuple(Binding(COMMANDS, COMMANDS, key) for key in COMMAND_KEYS),
    )


def bus_topology() -> Topology:
    """What takes public events and alerts; who wants any of them binds a queue of their own."""
    return Topology(exchanges=(Exchange(EVENTS, "topic"), Exchange(ALERTS, "topic")))


def shard_key(namespace: str, run_id: str) -> str:
    """The key, beside its topic, under which an event of a run reaches the projectors of its namespace."""
    return _shard_key(namespace, zlib.crc32(run_id.encode()) % SHARDS)


def _shard_key(namespace: str, shard: int) -> str:
    # One word, with characters that no namespace has: no pattern for topics matches it but those for all.
    return f"@projector/{namespace}/{shard}"


def projector_queue(namespace: str, shard: int) -> str:
    """The name of the queue that has the events of one of the shards of a namespace."""
    prefix = "tidewheel" if namespace == "default" else f"tidewheel.{namespace}"
    return f"{prefix}.projector.{shard}"


def projector_dead_letters(namespace: str) -> str:
    """The name of the queue that keeps what projectors cannot read, for people to look at."""
    prefix = "tidewheel" if namespace == "default" else f"tidewheel.{namespace}"
    return dead_letter_queue(f"{prefix}.projector")


def projector_topology(namespace: str, shards: int = SHARDS) -> Topology:
    """The queues of a namespace's projectors: one for each shard, or a single one for all events."""
    assert shards in (1, SHARDS), "events are addressed to a fixed number of shards"
    dead = projector_dead_letters(namespace)
    keys = [f"{namespace}.#"] if shards == 1 else [_shard_key(namespace, shard) for shard in range(shards)]
    names = [projector_queue(namespace, shard) for shard in range(shards)]
    # Two consumers of one queue would each have what the other waits for, and no room for more.
    queues = [
        Queue(name=name, delivery_limit=EVENT_DELIVERY_LIMIT, dead_letter_queue=dead, single_consumer=True)
        for name in names
    ]
    return Topology(
        exchanges=(Exchange(EVENTS, "topic"),),
        queues=(*queues, Queue(name=dead)),
        bindings=tuple(Binding(EVENTS, name, key) for name, key in zip(names, keys, strict=True)),
    )


def sticky_topology(namespace: str, worker: str, fallback: str) -> Topology:
    """A worker's own queue: what it does not take in time goes back to the *fallback* work queue."""
    return Topology(
        queues=(
            Queue(
                name=sticky_queue(worker),
                kind="classic",
                dead_letter_queue=work_queue(namespace, fallback),
                ttl_s=STICKY_TTL_S,
                expires_s=20 * STICKY_TTL_S,
            ),
        )
    )


def reply_topology(client: str) -> Topology:
    """A client's queue of replies; it goes away with the client."""
    return Topology(queues=(Queue(name=reply_queue(client), kind="classic", ttl_s=60.0, expires_s=600.0),))
