"""What a broker can do, whichever it is.

Every adapter passes one suite, ``tests/conformance/broker``. Delivery is at least once: a message
is delivered again where its consumer went away before it acknowledged. Nothing here decides what
happens to a run; losing, repeating or delaying a message only changes when.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeAlias

from tidewheel.broker.message import Message, Publication
from tidewheel.broker.topology import Topology

#: Why a message was not taken: there is no queue for it, or one that takes no more.
Untaken: TypeAlias = Literal["unroutable", "refused"]


class Delivery(Protocol):
    """One message in the hands of one consumer, which says once what becomes of it.

    Saying it twice, or after the consumer has closed, changes nothing.
    """

    @property
    def message(self) -> Message:
        """What was published."""

    @property
    def queue(self) -> str:
        """The queue it came from."""

    @property
    def routing_key(self) -> str:
        """The key it was published under, for good: also as a dead letter, or put into its queue again.

        That of a message which was sent to a queue itself is the queue's name.
        """

    @property
    def earlier_deliveries(self) -> int:
        """How often it was delivered before: 0 at first."""

    async def acknowledge(self) -> None:
        """It is done with: forget it."""

    async def release(self) -> None:
        """Give it back to its place in the queue, for anybody. Counts toward the delivery limit."""

    async def bury(self, reason: str) -> None:
        """Make it a dead letter, with its reason in the headers."""


class Deliveries(Protocol):
    """What a consumer receives, one after the other."""

    def __aiter__(self) -> AsyncIterator[Delivery]:
        """Return itself: it is an iterator."""

    async def __anext__(self) -> Delivery:
        """Wait for the next message. Being cancelled here costs none."""

    async def stop(self) -> None:
        """Fetch no more, and give back what was only fetched ahead, for others to take.

        The iterator ends. What is in hand can still be settled, until the block is left.
        """


class Broker(Protocol):
    """Queues that several processes share. All methods raise ``BrokerUnavailable``."""

    @property
    def lacks(self) -> frozenset[str]:
        """What of this protocol it cannot do, by word; ``kombu_transports`` says what each word means."""

    async def declare(self, topology: Topology) -> None:
        """Make sure that all of *topology* exists."""

    async def offer(self, publications: Sequence[Publication]) -> list[Untaken | None]:
        """Publish in this order, and return for each why it was not taken; None if it was."""

    async def publish(self, publications: Sequence[Publication]) -> None:
        """Return when the broker has taken all of them, in this order.

        Raises ``Unroutable`` for those that no queue takes, after the others were taken.
        """

    def consume(self, queue: str, *, prefetch: int) -> AbstractAsyncContextManager[Deliveries]:
        """Receive from *queue*, at most *prefetch* unsettled deliveries at a time.

        When the block is left, what was not settled goes back to its place in the queue. What was only
        fetched ahead was not delivered and is not counted; that may go to the end of the queue.
        """

    async def depth(self, queue: str) -> int:
        """How many messages wait in *queue*, not counting those in somebody's hands; 0 if there is none.

        What was given back or buried a moment ago may not be counted yet: no broker says when it is there.
        """

    async def delete_queue(self, queue: str) -> None:
        """Remove *queue* and what is in it; nothing if it is not there."""

    async def close(self) -> None:
        """Give back what is unsettled and let go. May be called twice."""
