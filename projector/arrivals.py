"""Messages of the event bus as they arrive: read, checked, and in hand until what they say is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidewheel.broker.bus import read_event
from tidewheel.broker.errors import PoisonMessage
from tidewheel.broker.message import Message
from tidewheel.broker.protocol import Delivery
from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.ids import PromiseId
from tidewheel.journal.public import PublicEvent
from tidewheel.store.records import RunRef

#: What no store can count beyond.
SEQ_MAX: Final = 2**63 - 1


@dataclass(slots=True, eq=False)
class Arrival:
    """An event in hand, and since when by the loop's clock."""

    delivery: Delivery
    run: RunRef
    event: PublicEvent
    at: float


def arrived(delivery: Delivery, namespace: str, at: float) -> Arrival:
    """Return what *delivery* brings, or raise ``PoisonMessage`` for what no projector can take."""
    return Arrival(delivery, *_read(delivery.message, namespace), at)


def _read(message: Message, namespace: str) -> tuple[RunRef, PublicEvent]:
    of, event = read_event(message)
    if of != namespace:
        raise PoisonMessage(f"an event of namespace {of[:100]!r}, in a queue of {namespace!r}")
    try:
        PromiseId.parse(event.run_id)
    except InvalidRequest as error:
        raise PoisonMessage(f"not a public event: {error}") from None
    before = -1 if event.prev_seq is None else event.prev_seq
    if not -1 <= before < event.run_seq <= SEQ_MAX:
        problem = f"run_seq {event.run_seq} cannot follow prev_seq {event.prev_seq}"
        raise PoisonMessage(f"not a public event: {problem}")
    if any("\0" in text for text in (event.workflow, event.step_id or "")):
        raise PoisonMessage("not a public event: a NUL in a name")
    return RunRef(namespace, event.run_id), event
