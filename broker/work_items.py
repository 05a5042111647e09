"""The messages between our own processes, typed.

A work item is a hint that a run may have something to do: it says where to look, never what
happened. Reading one checks it; what is none of these is poison.
"""

from __future__ import annotations

from collections.abc import Callable
from os import urandom
from typing import Final, TypeAlias

import msgspec

from tidewheel.broker.errors import PoisonMessage
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.topology import work_queue
from tidewheel.telemetry.context import TraceContext, headers_of

#: Stands where a message has no JSON of somebody else's.
NOTHING: Final = msgspec.Raw(b"")


class RunHint(msgspec.Struct, frozen=True, kw_only=True, tag="run", tag_field="kind", omit_defaults=True):
    """A run may have something to do; ``alone``: with nothing else in the worker, for it has crashed some.

    ``sketch`` is the run as it was when this was said, as JSON, for a worker whose store can do with that.
    """

    namespace: str
    run_id: str
    alone: bool = False
    sketch: msgspec.Raw = NOTHING


class TaskHint(msgspec.Struct, frozen=True, kw_only=True, tag="task", tag_field="kind"):
    """A step waits to be executed by whoever serves its queue."""

    namespace: str
    run_id: str
    path: str
    attempt: int


class RunEnded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run has ended, with event *last_seq*: the *event*, as JSON, unless it is large or not at hand."""

    namespace: str
    run_id: str
    last_seq: int = -1
    event: msgspec.Raw = NOTHING


class RunsEnded(msgspec.Struct, frozen=True, kw_only=True, tag="ended", tag_field="kind"):
    """Runs have ended; whoever asked for their results can read them, or has them here."""

    runs: list[RunEnded]


WorkItem: TypeAlias = RunHint | TaskHint
Item: TypeAlias = RunHint | TaskHint | RunsEnded

_encode = msgspec.json.Encoder().encode
_decode: Callable[[bytes], Item] = msgspec.json.Decoder(Item).decode


def message_of(item: Item, trace: TraceContext | None = None) -> Message:
    """Put *item* into a message of its own; *trace* is where it is sent, if that is known."""
    if trace is None:
        return Message(body=_encode(item), message_id=urandom(16).hex())
    return Message(body=_encode(item), message_id=urandom(16).hex(), headers=headers_of(trace))


def to_queue(item: Item, queue: str, trace: TraceContext | None = None) -> Publication:
    """Address *item* to the queue of exactly this name."""
    return Publication(message=message_of(item, trace), routing_key=queue)


def to_client(item: RunsEnded, queue: str) -> Publication:
    """Address *item* to the client with this queue of replies.

    It need not last: a client whose broker was away looks at everything it waits for.
    """
    return Publication(message=message_of(item), routing_key=queue, lasting=False)


def to_workers(item: WorkItem, queue: str, trace: TraceContext | None = None) -> Publication:
    """Address *item* to the workers that serve *queue*."""
    return to_queue(item, work_queue(item.namespace, queue), trace)


def read_item(message: Message) -> Item:
    """Return what *message* says, or raise ``PoisonMessage``."""
    try:
        return _decode(message.body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PoisonMessage(f"not a work item: {error}") from None
