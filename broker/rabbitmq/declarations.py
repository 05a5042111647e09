"""What of a topology RabbitMQ is told, as data: the very arguments of each declaration.

What stands here is sent, and what is sent was checked against the rules of RabbitMQ 3.10 and 4.x
(``broker/rabbitmq/lint.py``). Durable always, never exclusive, nothing that a default of the server decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tidewheel.broker.topology import Queue, Topology

#: The delivery limit of a queue that has none. RabbitMQ 4 would take 20 if it were not told, and 3.10 has
#: no word for "none".
NO_LIMIT: Final = 1_000_000


class QueueDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as RabbitMQ is told of it."""

    name: str
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    arguments: dict[str, Any] = {}


def queue_declarations(topology: Topology) -> Iterator[QueueDeclaration]:
    """Yield the declarations of the queues of *topology*."""
    for queue in topology.queues:
        yield QueueDeclaration(name=queue.name, arguments=queue_arguments(queue))


def queue_arguments(queue: Queue) -> dict[str, Any]:
    """Return what *queue* asks for, in RabbitMQ's words.

    A limit of three deliveries is one of two returns: RabbitMQ counts those.
    """
    arguments: dict[str, Any] = {"x-queue-type": queue.kind}
    if queue.kind == "quorum":
        limit = queue.delivery_limit
        arguments["x-delivery-limit"] = NO_LIMIT if limit is None else max(0, limit - 1)
    if queue.dead_letter_queue is not None:
        arguments["x-dead-letter-exchange"] = ""
        arguments["x-dead-letter-routing-key"] = queue.dead_letter_queue
    if queue.ttl_s is not None:
        arguments["x-message-ttl"] = round(queue.ttl_s * 1000)
    if queue.expires_s is not None:
        arguments["x-expires"] = round(queue.expires_s * 1000)
    if queue.single_consumer:
        arguments["x-single-active-consumer"] = True
    return arguments
