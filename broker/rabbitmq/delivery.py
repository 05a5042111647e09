"""What a consumer hands to the program: a message, and three words to say what becomes of it."""

from __future__ import annotations

from typing import Protocol

from tidewheel.broker.rabbitmq.incoming import Incoming


class Settler(Protocol):
    """Whoever carries out what is said of a delivery."""

    queue: str

    @property
    def is_over(self) -> bool:
        """Whether nothing can be said any more: everything went back."""

    def acknowledge(self, tag: int) -> None:
        """Forget it."""

    def release(self, tag: int) -> None:
        """Give it back."""

    async def bury(self, delivery: RabbitDelivery, reason: str) -> None:
        """Make it a dead letter."""


class RabbitDelivery:
    """One message in the hands of a consumer of RabbitMQ."""

    __slots__ = ("_is_settled", "_settler", "earlier_deliveries", "message", "queue", "routing_key", "tag")

    def __init__(self, settler: Settler, incoming: Incoming) -> None:
        self._settler = settler
        self._is_settled = False
        self.queue = settler.queue
        self.tag = incoming.tag
        self.message = incoming.message
        self.routing_key = incoming.routing_key
        self.earlier_deliveries = incoming.earlier_deliveries

    async def acknowledge(self) -> None:
        """It is done with: forget it."""
        if self._is_first_word():
            self._settler.acknowledge(self.tag)

    async def release(self) -> None:
        """Give it back to its place in the queue."""
        if self._is_first_word():
            self._settler.release(self.tag)

    async def bury(self, reason: str) -> None:
        """Make it a dead letter, with its reason in the headers. Not done if this raises."""
        if not self._is_first_word():
            return
        try:
            await self._settler.bury(self, reason)
        except BaseException:
            self._is_settled = False
            raise

    def _is_first_word(self) -> bool:
        if self._is_settled or self._settler.is_over:
            return False
        self._is_settled = True
        return True
