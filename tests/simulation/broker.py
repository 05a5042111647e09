"""The broker as one process sees it: the memory twin behind a wire that loses, repeats and delays.

The queues belong to the servers' process, so that their timers outlive whoever set them. When a
process dies its connection is closed a little later, and what it held goes back to its place.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.wire import Wire, at_once
from tidewheel.broker.errors import BrokerUnavailable, Unroutable
from tidewheel.broker.memory import MemoryBroker, MemoryConsumer, MemoryDelivery
from tidewheel.broker.memory_queues import MemoryQueues
from tidewheel.broker.message import Message, Publication, address
from tidewheel.broker.protocol import Untaken
from tidewheel.broker.topology import COMMANDS, Topology

T = TypeVar("T")


class SimulatedQueues(MemoryQueues):
    """Queues whose timer is the servers'."""

    def __init__(self, loop: SimulatedLoop, servers: Process) -> None:
        super().__init__(loop.time)
        self._servers = servers

    def _set_timer(self) -> None:
        self._servers.context.copy().run(super()._set_timer)


class SimulatedBroker:
    """One process's connection to the broker."""

    def __init__(self, wire: Wire, queues: SimulatedQueues) -> None:
        self._wire = wire
        self._faults = wire.faults
        self._queues = queues
        self._twin = MemoryBroker(queues=queues)
        self._consumers: list[MemoryConsumer] = []

    # The harness's side

    def sever(self) -> None:
        """The broker has noticed that the process is gone."""
        at_once(self._twin.close())

    def swallow(self) -> None:
        """What the broker had already sent to a process that died before it saw it."""
        for consumer in self._consumers:
            if consumer.queue.waiting and not consumer.queue.gone:
                self._wire.servers.call_later(0.0, self._swallow_one, consumer)

    def _swallow_one(self, consumer: MemoryConsumer) -> None:
        if consumer in self._consumers and consumer.queue.waiting and not consumer.queue.gone:
            # It has as many as it may, or has stopped.
            with contextlib.suppress(AssertionError, BrokerUnavailable, StopAsyncIteration):
                at_once(anext(consumer))

    def cut_consumers(self) -> None:
        """Lose the connection: what the process holds goes back, and it is told."""
        for consumer in self._consumers:
            consumer.close("simulated: the connection was lost")
        self._consumers = []

    # The process's side

    @property
    def lacks(self) -> frozenset[str]:
        """Nothing."""
        return frozenset()

    async def declare(self, topology: Topology) -> None:
        """Make sure that all of *topology* exists."""
        await self._ask(lambda: at_once(self._twin.declare(topology)))

    async def offer(self, publications: Sequence[Publication]) -> list[Untaken | None]:
        """Do the same, and say which of them no queue takes."""
        try:
            await self.publish(publications)
        except Unroutable as lost:
            return ["unroutable" if address(one) in lost.addresses else None for one in publications]
        return [None] * len(publications)

    async def publish(self, publications: Sequence[Publication]) -> None:
        """Take all of them; what happens to a hint after that nobody is told.

        A command is the only word of what it asks for: what the broker has taken it keeps, though it may be
        late and come twice.
        """

        def serve() -> None:
            lost = []
            for one in publications:
                if not self._queues.route(one.exchange, (one.routing_key, *one.also)):
                    lost.append(address(one))
                elif self._is_kept(one) or not self._faults.strikes("hint_lost"):
                    self._deliver(one)
                    if self._faults.strikes("hint_twice"):
                        self._deliver(one)
            if lost:
                raise Unroutable(lost)

        await self._ask(serve)

    def _is_kept(self, publication: Publication) -> bool:
        queues = self._queues.route(publication.exchange, (publication.routing_key, *publication.also))
        return any(queue.declared.name == COMMANDS for queue in queues)

    def _deliver(self, publication: Publication) -> None:
        if self._faults.strikes("hint_late"):
            delay_s = self._faults.chance.choice((0.05, 0.5, 5.0, 30.0)) * self._faults.chance.random()
            self._wire.servers.call_later(delay_s, self._put, publication)
        else:
            self._put(publication)

    def _put(self, publication: Publication) -> None:
        for queue in self._queues.route(publication.exchange, (publication.routing_key, *publication.also)):
            self._queues.put(queue, publication.message, publication.routing_key)

    @contextlib.asynccontextmanager
    async def consume(self, queue: str, *, prefetch: int) -> AsyncIterator[SimulatedConsumer]:
        """Receive from *queue*."""
        await self._ask(lambda: None)
        async with self._twin.consume(queue, prefetch=prefetch) as consumer:
            assert isinstance(consumer, MemoryConsumer)
            self._consumers.append(consumer)
            try:
                yield SimulatedConsumer(self._wire, consumer)
            finally:
                if consumer in self._consumers:
                    self._consumers.remove(consumer)

    async def depth(self, queue: str) -> int:
        """How many messages wait in *queue*."""
        return await self._ask(lambda: at_once(self._twin.depth(queue)))

    async def delete_queue(self, queue: str) -> None:
        """Remove *queue*."""
        await self._ask(lambda: at_once(self._twin.delete_queue(queue)))

    async def close(self) -> None:
        """Give back what is unsettled."""
        self.sever()

    async def _ask(self, serve: Callable[[], T]) -> T:
        def serve_or_refuse() -> T:
            if self._faults.strikes("broker_unavailable"):
                raise BrokerUnavailable("simulated: the broker is away")
            return serve()

        return await self._wire.ask(serve_or_refuse)


class SimulatedConsumer:
    """Takes from the twin's consumer, and lets each delivery travel a while."""

    def __init__(self, wire: Wire, twin: MemoryConsumer) -> None:
        self._wire = wire
        self._twin = twin
        #: Taken by a call that was cancelled while the delivery travelled.
        self._arrived: deque[MemoryDelivery] = deque()

    def __aiter__(self) -> SimulatedConsumer:
        """A consumer is its own iterator."""
        return self

    async def __anext__(self) -> SimulatedDelivery:
        """Wait for the next message; being cancelled costs none."""
        if not self._arrived:
            self._arrived.append(await anext(self._twin))
        await self._wire.ask(lambda: None)
        return SimulatedDelivery(self._wire, self._arrived.popleft())

    async def stop(self) -> None:
        """Take no more."""
        await self._wire.ask(lambda: at_once(self._twin.stop()))


class SimulatedDelivery:
    """A delivery that is settled when the broker hears of it; if the consumer was cut before, it is not."""

    def __init__(self, wire: Wire, twin: MemoryDelivery) -> None:
        self._wire = wire
        self._twin = twin

    @property
    def message(self) -> Message:
        """What was published."""
        return self._twin.message

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self._twin.queue

    @property
    def routing_key(self) -> str:
        """The key it was published under."""
        return self._twin.routing_key

    @property
    def earlier_deliveries(self) -> int:
        """How often it was delivered before."""
        return self._twin.earlier_deliveries

    async def acknowledge(self) -> None:
        """Forget it."""
        await self._wire.ask(lambda: at_once(self._twin.acknowledge()))

    async def release(self) -> None:
        """Give it back."""
        await self._wire.ask(lambda: at_once(self._twin.release()))

    async def bury(self, reason: str) -> None:
        """Make it a dead letter."""
        await self._wire.ask(lambda: at_once(self._twin.bury(reason)))
