"""The memory twin: a broker inside one event loop, for tests and simulations.

It keeps the whole protocol and nothing else: no thread, no clock of its own, no chance. The same
calls in the same order give the same deliveries in the same order. Everything is lost with the
process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Self

from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.memory_queues import MemoryQueue, MemoryQueues, Waiting
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.protocol import Untaken
from tidewheel.broker.taking import check_taken
from tidewheel.broker.topology import Topology


class MemoryDelivery:
    """One message in the hands of a consumer of the memory broker."""

    def __init__(self, consumer: MemoryConsumer, waiting: Waiting) -> None:
        self._consumer = consumer
        self.waiting = waiting
        self._earlier_deliveries = waiting.deliveries - 1

    @property
    def message(self) -> Message:
        """What was published."""
        return self.waiting.message

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self._consumer.queue.declared.name

    @property
    def routing_key(self) -> str:
        """The key it was published under."""
        return self.waiting.key

    @property
    def earlier_deliveries(self) -> int:
        """How often it was delivered before: 0 at first."""
        return self._earlier_deliveries

    async def acknowledge(self) -> None:
        """It is done with: forget it."""
        self._consumer.settle(self)

    async def release(self) -> None:
        """Give it back to its place in the queue."""
        if self._consumer.settle(self):
            self._consumer.queues.give_back(self._consumer.queue, self.waiting)

    async def bury(self, reason: str) -> None:
        """Make it a dead letter, with its reason in the headers."""
        if self._consumer.settle(self):
            self._consumer.queues.bury(self._consumer.queue, self.waiting, reason)


class MemoryConsumer:
    """Takes from one queue, when asked, while it has fewer than *prefetch* unsettled deliveries."""

    def __init__(self, queues: MemoryQueues, queue: MemoryQueue, prefetch: int) -> None:
        self.queues = queues
        self.queue = queue
        self._prefetch = prefetch
        self._held: dict[MemoryDelivery, Waiting] = {}
        self._changed = asyncio.Event()
        self._stopped = False
        self._closed: str | None = None

    def __aiter__(self) -> Self:
        """Return itself: a consumer is its own iterator."""
        return self

    async def __anext__(self) -> MemoryDelivery:
        """Wait for the next message. Being cancelled here costs no message: it is taken in one go."""
        while True:
            self.queues.sweep()
            if self.queue.gone or self._closed:
                raise BrokerUnavailable(
                    self._closed or f"the queue {self.queue.declared.name!r} is gone; declare it again"
                )
            if self._stopped:
                raise StopAsyncIteration
            if (
                self.queue.waiting
                and len(self._held) < self._prefetch
                and self.queues.may_take(self.queue, self.wake)
            ):
                delivery = MemoryDelivery(self, self.queues.take(self.queue))
                self._held[delivery] = delivery.waiting
                self.queue.idle.pop(self.wake, None)
                return delivery
            self._changed.clear()
            # Who has waited longest is woken first, so that idle consumers take turns.
            self.queue.idle.setdefault(self.wake)
            await self._changed.wait()

    async def stop(self) -> None:
        """Take no more; nothing was fetched ahead."""
        self._stopped = True
        self.queues.leave(self.queue, self.wake)
        self.wake()

    def wake(self) -> None:
        """Look again: a message came, a place in the prefetch got free, or it is over."""
        self._changed.set()

    def settle(self, delivery: MemoryDelivery) -> bool:
        """Take *delivery* out of this consumer's hands; false if it is not in them any more."""
        if self._held.pop(delivery, None) is None:
            return False
        self.wake()
        return True

    def close(self, why: str) -> None:
        """Give back everything unsettled, first things first."""
        if self._closed:
            return
        self._closed = why
        held, self._held = self._held, {}
        self.queues.leave(self.queue, self.wake)
        for waiting in sorted(held.values(), key=lambda waiting: waiting.place):
            self.queues.give_back(self.queue, waiting)
        self.wake()


class MemoryBroker:
    """A connection to queues in memory; ``connect`` gives another one to the same queues.

    *now* is what time is, in seconds; without it, the running loop's time. Closing a connection
    gives back what its consumers hold, as the death of a process would, and leaves the queues.
    """

    def __init__(self, *, now: Callable[[], float] | None = None, queues: MemoryQueues | None = None) -> None:
        self._queues = queues or MemoryQueues(now or (lambda: asyncio.get_running_loop().time()))
        self._consumers: dict[MemoryConsumer, None] = {}
        self._closed = False

    def connect(self) -> MemoryBroker:
        """Return another connection to the same queues, as another process would have."""
        return MemoryBroker(queues=self._queues)

    @property
    def lacks(self) -> frozenset[str]:
        """Nothing."""
        return frozenset()

    async def declare(self, topology: Topology) -> None:
        """Make sure that all of *topology* exists, or change nothing and raise ``InvalidRequest``."""
        self._open_queues().declare(topology)

    async def offer(self, publications: Sequence[Publication]) -> list[Untaken | None]:
        """Put each message into the queues its address leads to, in this order."""
        return self._offer(publications)

    async def publish(self, publications: Sequence[Publication]) -> None:
        """Do the same, and raise ``Unroutable`` for those that no queue takes."""
        check_taken(publications, self._offer(publications), "memory://")

    def _offer(self, publications: Sequence[Publication]) -> list[Untaken | None]:
        queues = self._open_queues()
        answers: list[Untaken | None] = []
        for publication in publications:
            found = queues.route(publication.exchange, (publication.routing_key, *publication.also))
            for queue in found:
                queues.put(queue, publication.message, publication.routing_key)
            answers.append(None if found else "unroutable")
        return answers

    @asynccontextmanager
    async def consume(self, queue: str, *, prefetch: int) -> AsyncIterator[MemoryConsumer]:
        """Receive from *queue*; what is unsettled when the block is left goes back to its place."""
        assert prefetch >= 1
        queues = self._open_queues()
        found = queues.by_name.get(queue)
        if found is None:
            raise BrokerUnavailable(f"there is no queue {queue!r}; declare it before consuming")
        consumer = MemoryConsumer(queues, found, prefetch)
        queues.join(found, consumer.wake)
        self._consumers[consumer] = None
        try:
            yield consumer
        finally:
            self._consumers.pop(consumer, None)
            consumer.close("this consumer was closed")

    async def depth(self, queue: str) -> int:
        """How many messages wait in *queue*; 0 if there is none."""
        found = self._open_queues().by_name.get(queue)
        return len(found.waiting) if found else 0

    async def delete_queue(self, queue: str) -> None:
        """Remove *queue* and what is in it; its consumers are told."""
        self._open_queues().delete(queue)

    async def close(self) -> None:
        """Give back what is unsettled here. The queues stay, for other connections."""
        self._closed = True
        for consumer in list(self._consumers):
            consumer.close("the broker was closed")
        self._consumers.clear()

    def _open_queues(self) -> MemoryQueues:
        """Return the queues as they are now, unless this connection was closed."""
        if self._closed:
            raise BrokerUnavailable("the broker was closed")
        self._queues.sweep()
        return self._queues
