"""Declaring a topology: everything that exists is compared first, then what is missing is made.

RabbitMQ has no transactions for this, and stops at the first mismatch. So nothing is made before all that
exists was found to fit, and a refusal is explained: which queue, which argument, what it has, what was asked
for, and what to do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from aio_pika.abc import AbstractChannel

from tidewheel.broker.rabbitmq.control import REFUSALS, Control, look_for_exchange, look_for_queue
from tidewheel.broker.rabbitmq.declarations import QueueDeclaration, queue_declarations
from tidewheel.broker.rabbitmq.lint import breaches
from tidewheel.broker.rabbitmq.mismatch import explanation
from tidewheel.broker.topology import Binding, Exchange, Topology
from tidewheel.journal.errors import InvalidRequest


async def declare(control: Control, topology: Topology) -> None:
    """Make sure that all of *topology* exists, or raise ``InvalidRequest`` and change nothing.

    Nothing, unless somebody declares something else at the same moment.
    """
    refused = [breach for breach in breaches(topology) if breach.is_refused]
    if refused:
        raise InvalidRequest("; ".join(map(str, refused)))
    exchanges = {exchange.name: exchange for exchange in topology.exchanges}
    queues = {queue.name: queue for queue in queue_declarations(topology)}
    bound_exchanges = {binding.exchange for binding in topology.bindings}
    bound_queues = {binding.queue for binding in topology.bindings}
    old_exchanges = {
        name
        for name in {*exchanges, *bound_exchanges}
        if await control.exists(partial(look_for_exchange, name=name))
    }
    old_queues = {
        name for name in {*queues, *bound_queues} if await control.exists(partial(look_for_queue, name=name))
    }
    missing = (bound_exchanges - {*exchanges, *old_exchanges}) | (bound_queues - {*queues, *old_queues})
    for binding in topology.bindings:
        if missing & {binding.exchange, binding.queue}:
            raise InvalidRequest(
                f"cannot bind queue {binding.queue!r} to exchange {binding.exchange!r}: declare both first"
            )
    # What is there comes first: declaring it again changes nothing, and says whether it fits.
    for name in sorted(exchanges, key=lambda name: name not in old_exchanges):
        await _tell(control, partial(_declare_exchange, exchange=exchanges[name]))
    for name in sorted(queues, key=lambda name: name not in old_queues):
        await _tell(control, partial(_declare_queue, queue=queues[name]))
    for binding in topology.bindings:
        await _tell(control, partial(_bind, binding=binding))


async def _tell(control: Control, declaration: Callable[[AbstractChannel], Awaitable[object]]) -> None:
    try:
        await control.ask(declaration, "declaring")
    except REFUSALS as refusal:
        raise InvalidRequest(explanation(str(refusal.args[-1]) if refusal.args else str(refusal))) from None


async def _declare_exchange(channel: AbstractChannel, exchange: Exchange) -> None:
    await channel.declare_exchange(exchange.name, exchange.type, durable=True)


async def _declare_queue(channel: AbstractChannel, queue: QueueDeclaration) -> None:
    await channel.declare_queue(
        queue.name,
        durable=queue.durable,
        exclusive=queue.exclusive,
        auto_delete=queue.auto_delete,
        arguments=queue.arguments,
    )


async def _bind(channel: AbstractChannel, binding: Binding) -> None:
    queue = await channel.get_queue(binding.queue, ensure=False)
    await queue.bind(binding.exchange, binding.key)
