"""How our messages, queues and errors look in kombu, and a connection of its own kind for one thread.

Kombu is typed in part only. Its untyped surface ends here; what we use of it is in ``kombu_types``.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from amqp.exceptions import (  # type: ignore[import-untyped]  # no types
    AMQPError,
    MessageNacked,
    NotFound,
    PreconditionFailed,
    RecoverableConnectionError,
)
from kombu.connection import Connection
from kombu.exceptions import KombuError
from kombu.transport import get_transport_cls
from kombu.transport.virtual.base import NotEquivalentError

from tidewheel.broker.embedded.channel import FURTHER_KEYS, NO_ROUTE
from tidewheel.broker.embedded.sqlite_file import advice
from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.kombu_transports import EMBEDDED, lacks
from tidewheel.broker.kombu_types import WireChannel, WireMessage
from tidewheel.broker.message import BYTES, Message, Publication
from tidewheel.broker.rabbitmq.headers import read_headers
from tidewheel.broker.rabbitmq.mismatch import explanation
from tidewheel.broker.topology import Queue
from tidewheel.journal.errors import InvalidRequest

#: AMQP's code for a queue or an exchange that is not there.
NOT_FOUND = 404

#: How long a consumer's thread waits at a time. Where it cannot be interrupted, settlements wait as long.
DRAIN_S = 1.0
DRAIN_UNINTERRUPTED_S = 0.05

_PERSISTENT = 2


def queue_arguments(queue: Queue) -> dict[str, Any]:
    """Return what *queue* asks for, in RabbitMQ's words."""
    arguments = {
        "x-message-ttl": None if queue.ttl_s is None else round(queue.ttl_s * 1000),
        "x-expires": None if queue.expires_s is None else round(queue.expires_s * 1000),
        "x-delivery-limit": queue.delivery_limit,
        "x-dead-letter-exchange": None if queue.dead_letter_queue is None else "",
        "x-dead-letter-routing-key": queue.dead_letter_queue,
    }
    return {name: value for name, value in arguments.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Target:
    """Which broker to connect to: a URL of kombu's, or a transport with its options.

    ``parameters`` are kombu's for the connection, ``publishing`` are options of every publish.
    ``wires_max`` bounds the connections that publish.
    """

    url: str | None = None
    transport: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    publishing: Mapping[str, Any] = field(default_factory=dict)
    arguments: Callable[[Queue], dict[str, Any]] = queue_arguments
    wires_max: int = 1

    @property
    def shown(self) -> str:
        """How to name it to people: without a password."""
        if "path" in self.options:
            return f"the broker's file {self.options['path']}"
        return f"the broker {self._connection().as_uri()}"

    @property
    def lacks(self) -> frozenset[str]:
        """What of the protocol its transport does not have."""
        return lacks(self.transport or transport_name(self.url or ""))

    def check(self) -> None:
        """Raise ``ValueError`` if the URL cannot be read. Connects to nothing."""
        self._connection().info()

    def connect(self) -> Wire:
        """Connect, without trying again: who calls knows better when to."""
        connection = self._connection()
        try:
            connection.ensure_connection(max_retries=0, reraise_as_library_errors=False)
            return Wire(connection, self)
        except BaseException:
            connection.release()
            raise

    def _connection(self) -> Any:
        connect = cast("Any", Connection)
        where = {"hostname": self.url, "transport": self.transport, **self.parameters}
        return connect(**where, transport_options=dict(self.options))


def embedded(path: Path, *, pages_max: int | None = None) -> Target:
    """Return the embedded broker in the file at *path*, at most *pages_max* SQLite pages long."""
    options: dict[str, object] = {"path": str(path.absolute())}
    if pages_max is not None:
        options["pages_max"] = pages_max
    return Target(transport=EMBEDDED, options=options)


class Wire:
    """A connection with one channel, for one thread."""

    def __init__(self, connection: Any, target: Target) -> None:
        self._connection = connection
        self._target = target
        self._interrupt: Callable[[], None] | None = getattr(connection.transport, "interrupt", None)
        self._returned = 0
        self._consumer_tag = ""
        self._open_channel()

    def _open_channel(self) -> None:
        channel = self._extras = self._connection.channel()
        self.channel: WireChannel = channel
        # Over AMQP an unroutable message comes back first and is confirmed after. Where nobody takes it,
        # the driver raises, and the confirmation that is still to come is taken for that of the next one.
        if self._is_amqp:
            channel.events["basic_return"].add(self._have_returned)

    @property
    def _is_amqp(self) -> bool:
        """Whether the channel is the AMQP driver's, not one of kombu's own transports."""
        return hasattr(self._extras, "events")

    def _open_again(self) -> None:
        """Open the channel if it is closed: AMQP does that to one on which something was not found."""
        if not getattr(self._extras, "is_open", True):
            self._open_channel()

    def _have_returned(self, *_: object) -> None:
        self._returned += 1

    def close(self) -> None:
        """Close it. What is unsettled goes back, if the transport can do that."""
        self._connection.release()

    def drop(self) -> None:
        """Close it without a word to the other side, which may not answer, where the transport can."""
        if hasattr(self._connection.transport, "_collect"):
            self._connection.collect()
        else:
            self._connection.release()

    def in_safe_order(self, queues: Sequence[Queue]) -> Sequence[Queue]:
        """Return *queues* in the order to declare them in: AMQP has no commit to undo the first of them.

        Those that exist come first, since declaring them again changes nothing and says whether they fit.
        """
        if not self._is_amqp:
            return queues
        return sorted(queues, key=lambda queue: self._count(queue.name) is None)

    def declare_queue(self, queue: Queue) -> None:
        """Make sure that *queue* exists, and outlives whoever uses it."""
        arguments = self._target.arguments(queue)
        self.channel.queue_declare(queue=queue.name, durable=True, auto_delete=False, arguments=arguments)

    def consume(self, queue: str, callback: Callable[[WireMessage], object]) -> None:
        """Let ``drain`` call *callback* with what *queue* delivers."""
        # Transports of kombu's own deliver kombu's messages, the AMQP driver its own.
        to_python = self._extras.message_to_python if self._is_amqp else None
        self._consumer_tag = str(uuid.uuid4())
        self.channel.basic_consume(
            queue=queue,
            no_ack=False,
            callback=callback if to_python is None else lambda raw: callback(to_python(raw)),
            consumer_tag=self._consumer_tag,
        )

    def consume_no_more(self) -> None:
        """Let nothing more be delivered; what was can still be settled."""
        self.channel.basic_cancel(self._consumer_tag)

    def drain(self) -> None:
        """Deliver what comes; return after a while, or when interrupted, if nothing does."""
        with suppress(TimeoutError):
            self._connection.drain_events(timeout=DRAIN_S if self._interrupt else DRAIN_UNINTERRUPTED_S)

    def interrupt(self) -> None:
        """Make ``drain`` return soon if the transport can; from any thread."""
        if self._interrupt is not None:
            self._interrupt()

    def one_commit(self) -> AbstractContextManager[None]:
        """Return a block whose operations are one commit, where the transport has such a thing."""
        begin = getattr(self._extras, "one_commit", None)
        return nullcontext() if begin is None else cast("AbstractContextManager[None]", begin())

    def depth(self, queue: str) -> int:
        """Count what waits in *queue*; 0 if there is none."""
        return self._count(queue) or 0

    def _count(self, queue: str) -> int | None:
        try:
            count: int = self.channel.queue_declare(queue=queue, passive=True).message_count
        except AMQPError as error:
            if int(error.reply_code or 0) != NOT_FOUND:
                raise
            self._open_again()
            return None
        return count

    def bury(self, tag: object, reason: str) -> None:
        """Make it a dead letter; a transport that keeps no reason just rejects it."""
        bury = getattr(self._extras, "bury", None)
        if bury is not None:
            bury(tag, reason)
        else:
            self.channel.basic_reject(tag, requeue=False)

    def return_unseen(self, tag: object) -> None:
        """Give back what nobody has looked at; a transport that does not know the difference counts it."""
        give_back = getattr(self._extras, "return_unseen", None)
        if give_back is not None:
            give_back(tag)
        else:
            self.channel.basic_reject(tag, requeue=True)

    def publish(self, publication: Publication) -> bool:
        """Publish; false if no queue takes it and the transport can tell."""
        message = publication.message
        properties: dict[str, Any] = {"message_id": message.message_id, "delivery_mode": _PERSISTENT}
        if message.expires_s is not None:
            properties["expiration"] = str(round(message.expires_s * 1000))
        headers: dict[str, Any] = dict(message.headers)
        if publication.also and "further-keys" not in self._target.lacks:
            headers[FURTHER_KEYS] = list(publication.also)
        prepared = self.channel.prepare_message(
            message.body,
            content_type=message.content_type,
            content_encoding="binary",
            headers=headers,
            properties=properties,
        )
        returned = self._returned
        try:
            self.channel.basic_publish(
                prepared,
                exchange=publication.exchange,
                routing_key=publication.routing_key,
                mandatory=True,
                **self._target.publishing,
            )
        except AMQPError as error:
            if error.reply_code not in (NO_ROUTE, NOT_FOUND):
                raise
            self._open_again()
            return False
        return self._returned == returned


def transport_name(url: str) -> str:
    """Return the name of kombu's transport for *url*."""
    return url.partition("://")[0].partition("+")[0]


def transport_is_known(url: str) -> bool:
    """Tell whether kombu has a transport for *url*, and what that needs."""
    try:
        get_transport_cls(transport_name(url))
    except (KeyError, ImportError, ValueError, AttributeError):
        return False
    return True


def read_message(raw: WireMessage) -> tuple[Message, int]:
    """Return our message, and how often it was delivered before, as far as the transport says."""
    headers, earlier = read_headers(raw.headers, redelivered=bool(raw.delivery_info.get("redelivered")))
    expiration = raw.properties.get("expiration")
    body = raw.body or b""
    message = Message(
        body=body.encode() if isinstance(body, str) else bytes(body),
        message_id=str(raw.properties.get("message_id") or ""),
        headers=headers,
        expires_s=int(expiration) / 1000 if expiration is not None else None,
        content_type=raw.content_type or BYTES,
    )
    return message, earlier


def is_lost(error: Exception) -> bool:
    """Tell whether *error* says that the connection is gone, which a new one may mend at once."""
    gone = isinstance(error, RecoverableConnectionError | OSError | EOFError)
    return gone and not isinstance(error, TimeoutError)


@contextmanager
def our_errors(target: Target, *, declaring: bool = False) -> Iterator[None]:
    """Turn what kombu and its transports raise into ``BrokerUnavailable``, naming the broker.

    What is refused while *declaring* is the caller's mistake: ``InvalidRequest``.
    """
    refusals = (PreconditionFailed, NotEquivalentError, NotFound) if declaring else ()
    try:
        yield
    except refusals as error:
        said = explanation(str(error)) if isinstance(error, PreconditionFailed) else str(error)
        raise InvalidRequest(said) from error
    except sqlite3.Error as error:
        raise BrokerUnavailable(f"{target.shown} cannot be used: {advice(error)}") from error
    except MessageNacked as error:
        raise BrokerUnavailable(f"{target.shown} refuses a message, as a queue that is full does") from error
    except (AMQPError, KombuError, NotEquivalentError, OSError, EOFError, ImportError) as error:
        raise BrokerUnavailable(f"{target.shown}: {error}") from error
