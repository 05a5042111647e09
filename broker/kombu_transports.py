"""What each of kombu's transports lacks of the protocol, by word.

Losing, repeating or delaying a message never changes a result, so each of them can carry hints; what it lacks
says what that costs. The tests try each word with ``memory``, ``filesystem`` and RabbitMQ through ``pyamqp``.
``sqla`` was tried once and takes too long to try each time; ``redis`` and ``sqs`` are read from kombu's
source and their servers' documentation. A transport that is not in the table is taken to lack everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: What a broker may lack, and what it means to have it.
ABILITIES: Final[Mapping[str, str]] = {
    "counts": "a delivery says how often the message was delivered before",
    "dead-letters": "what is buried, too old or was delivered too often is kept in another queue",
    "delivery-limit": "a message that comes back too often becomes a dead letter",
    "durability": "messages outlive every process",
    "further-keys": "a message is routed by more than one key",
    "order": "first in, first out",
    "place": "what is given back comes before what was published later",
    "reasons": "a dead letter says why it was buried",
    "redelivery": "what a process held that died is delivered again, at once",
    "sharing": "other processes use the same queues",
    "single-consumer": "one of a queue's consumers is given messages at a time, if the queue asks for it",
    "ttl": "messages and queues expire",
    "unroutable": "a message that no queue takes is reported",
    "unseen": "what was only fetched ahead does not count as delivered",
}

#: Where kombu finds the embedded broker.
EMBEDDED: Final = "tidewheel.broker.embedded.transport:Transport"

#: What no virtual transport of kombu's own has: what comes back goes to the end, what is rejected is dropped.
_OF_NONE: Final = frozenset(
    {
        "counts",
        "dead-letters",
        "delivery-limit",
        "further-keys",
        "place",
        "reasons",
        "single-consumer",
        "ttl",
        "unroutable",
    }
)

LACKS: Final[Mapping[str, frozenset[str]]] = {
    EMBEDDED: frozenset({"single-consumer"}),
    # A reject carries no words, and quorum queues count whatever they get back.
    "pyamqp": frozenset({"reasons", "unseen"}),
    "memory": _OF_NONE | {"durability", "redelivery", "sharing"},
    # A file is deleted when it is read, and names sort by chance within a millisecond.
    "filesystem": _OF_NONE | {"order", "redelivery"},
    # What was read and not acknowledged stays invisible for ever; bindings are known in their process only.
    "sqla": _OF_NONE | {"redelivery", "sharing"},
    # Redelivered after a visibility timeout, which is an hour by default; durable as Redis is set up to be.
    "redis": _OF_NONE | {"durability", "redelivery"},
    # Redelivered after a visibility timeout; the order of a standard queue is a best effort.
    "sqs": _OF_NONE | {"order", "redelivery"},
}
_OTHER_NAMES: Final = {
    "amqp": "pyamqp",
    "amqps": "pyamqp",
    "librabbitmq": "pyamqp",
    "sqlalchemy": "sqla",
    "rediss": "redis",
    "fs": "filesystem",
}


def lacks(transport: str) -> frozenset[str]:
    """Return what *transport* lacks, by the name that kombu knows it by."""
    name = transport if transport == EMBEDDED else transport.lower()
    return LACKS.get(_OTHER_NAMES.get(name, name), frozenset(ABILITIES))
