"""A channel of the embedded transport: kombu's verbs, done to a file of queues.

Queues take RabbitMQ's arguments ``x-message-ttl``, ``x-expires``, ``x-delivery-limit`` and
``x-dead-letter-routing-key`` with the empty ``x-dead-letter-exchange``. The limit is how often a
message may be delivered; RabbitMQ counts how often it may come back, which is one less.
"""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from amqp.exceptions import ChannelError, NotFound, PreconditionFailed  # type: ignore[import-untyped]  # no types
from amqp.protocol import queue_declare_ok_t  # type: ignore[import-untyped]  # no types
from kombu.transport import virtual

from tidewheel.broker.embedded.queue_file import BEAT_S, LEASE_S, Leased, QueueFile
from tidewheel.broker.message import DELIVERY_COUNT
from tidewheel.broker.topology import Exchange, Queue

#: How often a consumer looks for what no write announces: dead processes, and messages that grew too old.
SWEEP_S = 0.25
#: How much is fetched at once where there is no prefetch.
FETCH_MAX = 100
#: AMQP's code for a message that no queue takes.
NO_ROUTE = 312
#: Where an envelope has the key that its message was published under.
_KEY = "routing_key"
#: The header that has further routing keys, as RabbitMQ calls it; nobody who consumes sees it.
FURTHER_KEYS = "BCC"

# Kombu is typed in part only, and differently from release to release: here it is not typed at all.
VirtualChannel: Any = virtual.Channel


class Channel(VirtualChannel):  # type: ignore[misc]  # as said above
    """One user of the file: its consumers, and what they hold."""

    #: Bodies are stored as they are.
    body_encoding = None
    #: Giving back is done here, and not by kombu when objects are collected.
    do_restore = False
    supports_fanout = True

    def __init__(self, connection: Any, **options: Any) -> None:
        super().__init__(connection, **options)
        self.file: QueueFile = connection.open_file()
        self._prefetch = 0
        self._consumer_ids: dict[str, int] = {}
        self._callbacks: dict[str, Callable[[Any], object]] = {}
        self._queue_of_tag: dict[str, str] = {}
        self._held: dict[int, int] = {}
        self._looked_at_s = self._beat_at_s = self.file.now_s()
        self._sweep_at_s = 0.0

    def one_commit(self) -> AbstractContextManager[None]:
        """Return a block whose operations are committed together, or not at all."""
        return self.file.transaction()

    # Topology.

    def exchange_declare(
        self, exchange: str | None = None, type: str = "direct", *, passive: bool = False, **_: Any
    ) -> None:
        """Make sure the exchange exists, with this type."""
        exchange = exchange or f"amq.{type}"
        with self.file.transaction():
            found = self.file.find_exchange(exchange)
            if found is None and passive:
                raise NotFound(f"there is no exchange {exchange!r}")
            if found is not None and not passive and found.type != type:
                raise PreconditionFailed(
                    f"the exchange {exchange!r} exists with another type; use another name"
                )
            if found is None:
                self.file.declare_exchange(Exchange(exchange, type))  # type: ignore[arg-type]  # CHECKed there

    def exchange_delete(self, exchange: str, **_: Any) -> None:
        """Remove an exchange and its bindings."""
        self.file.delete_exchange(exchange)

    def queue_declare(
        self,
        queue: str | None = None,
        *,
        passive: bool = False,
        arguments: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> queue_declare_ok_t:
        """Make sure the queue exists, with these arguments; *passive* only looks."""
        queue = queue or f"amq.gen-{uuid.uuid4()}"
        if passive:
            self.file.sweep()
        with self.file.transaction():
            found = self.file.find_queue(queue)
            if found is None and passive:
                raise NotFound(f"there is no queue {queue!r}")
            if not passive:
                self._declare(found, queue_of_arguments(queue, arguments or {}))
        return queue_declare_ok_t(queue, self.file.depth(queue), 0)

    def _declare(self, found: Queue | None, queue: Queue) -> None:
        if found not in (None, queue):
            raise PreconditionFailed(
                f"the queue {queue.name!r} exists with other arguments; delete it or use another name"
            )
        self.file.declare_queue(queue)

    def queue_bind(self, queue: str, exchange: str | None = None, routing_key: str = "", **_: Any) -> None:
        """Send what *exchange* gets under *routing_key* to *queue*."""
        with self.file.transaction():
            if not self.file.find_queue(queue) or not self.file.find_exchange(exchange or ""):
                raise NotFound(f"cannot bind queue {queue!r} to exchange {exchange!r}: declare both first")
            self.file.bind(exchange=exchange or "", key=routing_key, queue=queue)

    def queue_unbind(self, queue: str, exchange: str | None = None, routing_key: str = "", **_: Any) -> None:
        """Send it there no more."""
        self.file.unbind(exchange=exchange or "", key=routing_key, queue=queue)

    def queue_delete(self, queue: str, *, if_unused: bool = False, if_empty: bool = False, **_: Any) -> None:
        """Remove a queue and what is in it."""
        if if_unused:
            raise PreconditionFailed("this broker cannot delete a queue only if it is unused")
        if not (if_empty and self.file.depth(queue)):
            self.file.delete_queue(queue)

    def queue_purge(self, queue: str, **_: Any) -> int:
        """Remove what waits in a queue, and return how much that was."""
        return self.file.purge(queue)

    # Messages.

    def basic_publish(
        self, message: dict[str, Any], exchange: str, routing_key: str, *, mandatory: bool = False, **_: Any
    ) -> None:
        """Append to every queue that takes it; if there is none and it is *mandatory*, raise."""
        self._sweep_sometimes()
        body = message["body"]
        expiration = message["properties"].get("expiration")
        also = message.get("headers", {}).pop(FURTHER_KEYS, ())
        taken = self.file.publish(
            exchange=exchange or "",
            keys=(routing_key or "", *also),
            body=body.encode() if isinstance(body, str) else body,
            envelope=_envelope(message, routing_key or ""),
            expires_s=int(expiration) / 1000 if expiration is not None else None,
        )
        if mandatory and not taken:
            raise ChannelError(f"no queue takes {routing_key!r}", reply_code=NO_ROUTE)

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, *_: Any, **__: Any) -> None:
        """Hold at most *prefetch_count* unsettled messages on this channel; 0 is any number."""
        assert not prefetch_size
        self._prefetch = prefetch_count

    def basic_consume(
        self, queue: str, *, no_ack: bool, callback: Callable[[Any], object], consumer_tag: str, **_: Any
    ) -> None:
        """Deliver what comes into *queue* to *callback*, while events are drained."""

        def acknowledge_and_call(message: Any) -> None:
            self.basic_ack(message.delivery_tag)
            callback(message)

        self._consumer_id(queue)
        self._callbacks[queue] = acknowledge_and_call if no_ack else callback
        self._queue_of_tag[consumer_tag] = queue

    def basic_cancel(self, consumer_tag: str) -> None:
        """Deliver no more; what was delivered can still be settled."""
        queue = self._queue_of_tag.pop(consumer_tag, None)
        if queue is not None and queue not in self._queue_of_tag.values():
            del self._callbacks[queue]

    def basic_get(self, queue: str, *, no_ack: bool = False, **_: Any) -> Any:
        """Return the first message, or None. It must be settled within the lease, or it comes back."""
        consumer = self._consumer_id(queue)
        self.file.sweep()
        for leased in self.file.lease(consumer, queue, batch_max=1):
            message = self._received(queue, consumer, leased)
            if no_ack:
                self.basic_ack(leased.place)
            return message
        return None

    def basic_ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        """It is done with: forget it, or also all before it."""
        tags = [tag for tag in self._held if tag <= delivery_tag] if multiple else [delivery_tag]
        for tag in tags:
            for consumer in self._settled(tag):
                self.file.acknowledge(consumer, tag)

    def basic_reject(self, delivery_tag: int, *, requeue: bool = False) -> None:
        """Give it back to its place, or make it a dead letter."""
        if not requeue:
            self.bury(delivery_tag, "rejected")
        for consumer in self._settled(delivery_tag):
            self.file.release(consumer, delivery_tag)

    def bury(self, delivery_tag: int, reason: str) -> None:
        """Make it a dead letter, with its reason in the headers."""
        for consumer in self._settled(delivery_tag):
            self.file.bury(consumer, delivery_tag, reason)

    def return_unseen(self, delivery_tag: int) -> None:
        """Give it back as if it had not been delivered: nobody has looked at it."""
        for consumer in self._settled(delivery_tag):
            self.file.return_unseen(consumer, delivery_tag)

    def basic_recover(self, *, requeue: bool = False) -> None:
        """Give back everything unsettled."""
        assert requeue
        with self.file.transaction():
            for tag in sorted(self._held):
                self.basic_reject(tag, requeue=True)

    def deliver(self) -> int:
        """Fetch what waits and hand it to the callbacks, as far as the prefetch goes; return how much."""
        delivered = 0
        for queue, callback in list(self._callbacks.items()):
            room = self._prefetch - len(self._held) if self._prefetch else FETCH_MAX
            if room <= 0:
                break
            consumer = self._consumer_ids[queue]
            for leased in self.file.lease(consumer, queue, batch_max=min(room, FETCH_MAX)):
                callback(self._received(queue, consumer, leased))
                delivered += 1
        return delivered

    def keep_house(self) -> None:
        """Stay alive for others, and do what is due; raise if a consumer here is known no more."""
        for queue, consumer in self._consumer_ids.items():
            if not self.file.is_consumer(consumer):
                raise NotFound(f"the queue {queue!r} is gone, or this consumer was taken for dead")
        now_s = self.file.now_s()
        slept = not 0 <= now_s - self._looked_at_s < LEASE_S / 2
        self._looked_at_s = now_s
        if not 0 <= now_s - self._beat_at_s < BEAT_S:
            self._beat_at_s = now_s
            for consumer in self._consumer_ids.values():
                self.file.beat(consumer)
        # After a machine slept, or its clock jumped, everybody seems silent: first let them speak.
        if not slept:
            self._sweep_sometimes()

    def close(self) -> None:
        """Give back everything unsettled, and let go of the file. May be called twice."""
        if self.closed:
            return
        try:
            with self.file.transaction():
                for consumer in self._consumer_ids.values():
                    self.file.remove_consumer(consumer)
        except sqlite3.Error:
            # Closing must end; others find out that we are gone.
            pass
        finally:
            self.file.close()
            self._consumer_ids, self._held, self._callbacks = {}, {}, {}
            super().close()

    def _sweep_sometimes(self) -> None:
        """Do what is due, if that was not done just now: also where there are only publishers."""
        if time.monotonic() >= self._sweep_at_s:
            self._sweep_at_s = time.monotonic() + SWEEP_S
            self.file.sweep()

    def _consumer_id(self, queue: str) -> int:
        """Return this channel's consumer of *queue*, known to the others from now on."""
        if queue not in self._consumer_ids:
            self.file.sweep()
            consumer = self.file.add_consumer(queue)
            if consumer is None:
                raise NotFound(f"there is no queue {queue!r}; declare it before consuming")
            self._consumer_ids[queue] = consumer
        return self._consumer_ids[queue]

    def _received(self, queue: str, consumer: int, leased: Leased) -> Any:
        """Return *leased* as kombu's message; its place is its delivery tag."""
        payload = json.loads(leased.envelope)
        earlier = leased.deliveries - 1
        if earlier:
            payload["headers"][DELIVERY_COUNT] = earlier
        info = {"queue": queue, "redelivered": earlier > 0, "routing_key": payload.pop(_KEY, queue)}
        payload["properties"].update(delivery_tag=leased.place, delivery_info=info)
        self._held[leased.place] = consumer
        return self.Message({**payload, "body": leased.body}, channel=self)

    def _settled(self, delivery_tag: int) -> Iterator[int]:
        """Yield the consumer that holds it, if one of ours does, which then holds it no more."""
        consumer = self._held.pop(delivery_tag, None)
        if consumer is not None:
            yield consumer


def _envelope(message: Mapping[str, Any], key: str) -> str:
    """Return all of *message* but its body, and the *key* it was published under."""
    return json.dumps({**{name: part for name, part in message.items() if name != "body"}, _KEY: key})


def queue_of_arguments(name: str, arguments: Mapping[str, Any]) -> Queue:
    """Read RabbitMQ's arguments of a queue; one that is not known is refused, not ignored."""
    known = {
        "x-message-ttl",
        "x-expires",
        "x-delivery-limit",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
    }
    unknown = sorted(set(arguments) - known)
    if unknown or arguments.get("x-dead-letter-exchange"):
        raise PreconditionFailed(
            f"the queue {name!r} asks for what this broker has not: "
            f"{', '.join(unknown) or 'a dead-letter exchange with a name'}"
        )
    ttl_ms, expires_ms = arguments.get("x-message-ttl"), arguments.get("x-expires")
    return Queue(
        name=name,
        delivery_limit=arguments.get("x-delivery-limit"),
        dead_letter_queue=arguments.get("x-dead-letter-routing-key"),
        ttl_s=ttl_ms / 1000 if ttl_ms is not None else None,
        expires_s=expires_ms / 1000 if expires_ms is not None else None,
    )
