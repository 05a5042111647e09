"""The messages between our own processes, typed.

A work item is a hint that a run may have something to do: it says where to look, never what
happened. Reading one checks it; what is none of these is poison.
"""

from __future__ import annotations

from collections.abc import Callable
from os import urandom
from typing import TypeAlias

import msgspec

from tidewheel.broker.errors import PoisonMessage
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.topology import work_queue


class RunHint(msgspec.Struct, frozen=True, kw_only=True, tag="run", tag_field="kind"):
    """A run may have something to do; ``alone``: with nothing else in the worker, for it has crashed some."""

    namespace: str
    run_id: str
    alone: bool = False


class TaskHint(msgspec.Struct, frozen=True, kw_only=True, tag="task", tag_field="kind"):
    """A step waits to be executed by whoever serves its queue."""

    namespace: str
    run_id: str
    path: str
    attempt: int


class RunEnded(msgspec.Struct, frozen=True, kw_only=True, tag="ended", tag_field="kind"):
    """A run has ended; whoever asked for its result can read it, as event *last_seq* if that is known."""

    namespace: str
    run_id: str
    last_seq: int = -1


WorkItem: TypeAlias = RunHint | TaskHint
Item: TypeAlias = RunHint | TaskHint | RunEnded

_encode = msgspec.json.Encoder().encode
_decode: Callable[[bytes], Item] = msgspec.json.Decoder(Item).decode


def message_of(item: Item) -> Message:
    """Put *item* into a message of its own."""
    return Message(body=_encode(item), message_id=urandom(16).hex())


def to_queue(item: Item, queue: str) -> Publication:
    """Address *item* to the queue of exactly this name."""
    return Publication(message=message_of(item), routing_key=queue)


def to_client(item: RunEnded, queue: str) -> Publication:
    """Address *item* to the client with this queue of replies.

    It need not last: a client whose broker was away looks at everything it waits for.
    """
    return Publication(message=message_of(item), routing_key=queue, lasting=False)


def to_workers(item: WorkItem, queue: str) -> Publication:
    """Address *item* to the workers that serve *queue*."""
    return to_queue(item, work_queue(item.namespace, queue))


def read_item(message: Message) -> Item:
    """Return what *message* says, or raise ``PoisonMessage``."""
    try:
        return _decode(message.body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PoisonMessage(f"not a work item: {error}") from None
