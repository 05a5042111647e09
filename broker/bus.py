"""Public events as messages on the event bus: CloudEvents in binary mode, over AMQP.

The body is the event in the contract's words; the ``ce-`` headers repeat what a consumer may want to know
before it reads the body. The id of the message is that of the event, which is made of what happened, so
whoever publishes an event again publishes the same message: consumers dedupe by it.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import msgspec

from tidewheel.broker.cloudevents import headers_of, namespace_of
from tidewheel.broker.errors import PoisonMessage
from tidewheel.broker.message import JSON, Message, Publication
from tidewheel.broker.topology import EVENTS, shard_key
from tidewheel.journal.public import PublicEvent
from tidewheel.telemetry.context import CLOUDEVENTS, TraceContext
from tidewheel.telemetry.context import headers_of as trace_headers

#: CloudEvents has no place for it in its own attributes; an extension is in small letters.
_IDEMPOTENCY_KEY: Final = "ce-idempotencykey"
#: What reading hostile bytes raises; ``RecursionError`` comes from deep nesting.
_NOT_READABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)


class EventBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the body says, in this order. ``prevSeq`` is null in a run's first event."""

    run_id: str
    run_seq: int
    prev_seq: int | None
    event_type: str
    workflow: str
    step_id: str | None = None
    step_name: str | None = None
    logical_attempt_id: str = "1"
    engine_attempt_id: str | None = None
    plan_version: str = ""
    emitted_at: dt.datetime | None = None
    persisted_at: dt.datetime | None = None
    caused_by_signal_id: str | None = None
    parent_event_id: str | None = None
    data: Any = None


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(EventBody).decode


def publication_of_event(
    event: PublicEvent, namespace: str, trace: TraceContext | None = None
) -> Publication:
    """Address *event* to whoever has bound a queue for its topic; *trace* is where it happened, if known."""
    event_id = event.id
    headers = headers_of(
        id=event_id,
        type=event.event_type,
        namespace=namespace,
        subject=event.run_id,
        time=event.emitted_at,
    )
    headers[_IDEMPOTENCY_KEY] = event.idempotency_key
    if trace is not None:
        headers |= trace_headers(trace, CLOUDEVENTS)
    message = Message(body=_encode(_body_of(event)), message_id=event_id, headers=headers, content_type=JSON)
    return Publication(
        message=message,
        exchange=EVENTS,
        routing_key=event.routing_key(namespace),
        also=(shard_key(namespace, event.run_id),),
    )


def read_event(message: Message) -> tuple[str, PublicEvent]:
    """Return the namespace and the event, or raise ``PoisonMessage`` with what is wrong with it."""
    namespace = namespace_of(message)
    try:
        body = _decode(message.body)
    except _NOT_READABLE as error:
        raise PoisonMessage(f"not a public event: {error}") from None
    return namespace, PublicEvent(
        run_id=body.run_id,
        run_seq=body.run_seq,
        prev_seq=body.prev_seq,
        event_type=body.event_type,
        workflow=body.workflow,
        step_id=body.step_id,
        step_name=body.step_name,
        logical_attempt_id=body.logical_attempt_id,
        engine_attempt_id=body.engine_attempt_id,
        plan_version=body.plan_version,
        emitted_at=body.emitted_at,
        persisted_at=body.persisted_at,
        caused_by_signal_id=body.caused_by_signal_id,
        parent_event_id=body.parent_event_id,
        data=body.data,
        idempotency_key=message.headers.get(_IDEMPOTENCY_KEY, ""),
    )


def _body_of(event: PublicEvent) -> EventBody:
    return EventBody(
        run_id=event.run_id,
        run_seq=event.run_seq,
        prev_seq=event.prev_seq,
        event_type=event.event_type,
        workflow=event.workflow,
        step_id=event.step_id,
        step_name=event.step_name,
        logical_attempt_id=event.logical_attempt_id,
        engine_attempt_id=event.engine_attempt_id,
        plan_version=event.plan_version,
        emitted_at=event.emitted_at,
        persisted_at=event.persisted_at,
        caused_by_signal_id=event.caused_by_signal_id,
        parent_event_id=event.parent_event_id,
        data=event.data,
    )
