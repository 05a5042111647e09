"""What we use of kombu's channels and messages, typed: transports of its own, and the AMQP driver's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol


class WireMessage(Protocol):
    """A message as kombu delivers it."""

    body: bytes | str | memoryview
    headers: dict[str, Any]
    properties: dict[str, Any]
    delivery_info: dict[str, Any]
    content_type: str | None
    delivery_tag: object


class WireChannel(Protocol):
    """A channel of kombu."""

    def exchange_declare(self, *, exchange: str, type: str, durable: bool, auto_delete: bool) -> object:
        """Make sure the exchange exists."""

    def queue_declare(
        self,
        *,
        queue: str,
        passive: bool = ...,
        durable: bool = ...,
        auto_delete: bool = ...,
        arguments: Mapping[str, Any] | None = ...,
    ) -> Any:
        """Make sure the queue exists, and say how much is in it. Transports differ in what is the default."""

    def queue_bind(self, *, queue: str, exchange: str, routing_key: str) -> object:
        """Bind a queue."""

    def queue_delete(self, queue: str) -> object:
        """Remove a queue."""

    def prepare_message(
        self,
        body: bytes,
        *,
        content_type: str,
        content_encoding: str,
        headers: dict[str, str],
        properties: dict[str, Any],
    ) -> Any:
        """Make a message of the transport's own kind."""

    def basic_publish(
        self, message: Any, *, exchange: str, routing_key: str, mandatory: bool, **options: Any
    ) -> object:
        """Publish it."""

    def basic_qos(self, prefetch_size: int, prefetch_count: int, apply_global: object, /) -> object:
        """Bound what is unsettled."""

    def basic_consume(
        self, *, queue: str, no_ack: bool, callback: Callable[[Any], object], consumer_tag: str
    ) -> object:
        """Deliver to *callback*."""

    def basic_cancel(self, consumer_tag: str) -> object:
        """Deliver no more."""

    def basic_ack(self, delivery_tag: object) -> object:
        """Forget it."""

    def basic_reject(self, delivery_tag: object, *, requeue: bool) -> object:
        """Give it back, or make it a dead letter."""
