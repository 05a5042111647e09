"""Alerts as messages: what people should look at, how badly, and what to do about it.

An alert goes to the topic exchange ``tidewheel.alerts`` under ``<namespace>.<ALERT>``, with the headers of
CloudEvents that events have. Its id is made of what it says, so whoever publishes an alert again publishes
the same message: consumers dedupe by it. ``KNOWN_ALERTS`` has all that Tidewheel raises; a reader takes
others too, which a later release may raise.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from tidewheel.broker.cloudevents import headers_of
from tidewheel.broker.errors import PoisonMessage
from tidewheel.broker.message import JSON, Message, Publication
from tidewheel.broker.topology import ALERTS
from tidewheel.journal.public import event_id

#: ``P1``: somebody should look now; ``P2``: today; ``P3``: when there is time.
Severity: TypeAlias = Literal["P1", "P2", "P3"]
Moment = Annotated[dt.datetime, msgspec.Meta(tz=True)]
#: What reading hostile bytes raises; ``RecursionError`` comes from deep nesting.
_NOT_READABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)


class Alert(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that people should look at; ``runId`` is null where it is about no single run.

    ``summary`` says what happened this time and ``action`` what to do about it, in words;
    ``details`` has the figures and names for programs.
    """

    alert: str
    severity: Severity
    namespace: str
    run_id: str | None = None
    summary: str
    action: str
    details: dict[str, Any] = {}
    raised_at: Moment


class KnownAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that Tidewheel raises: what it means, and what whoever gets it should do."""

    name: str
    severity: Severity
    meaning: str
    action: str


KNOWN_ALERTS: Final[dict[str, KnownAlert]] = {
    known.name: known
    for known in (
        KnownAlert(
            name="OUTBOX_DEAD_LETTER",
            severity="P1",
            meaning="The relay gave up publishing an event of a run. The run goes on, but its later events "
            "wait behind this one.",
            action="See the cause with `tidewheel dlq show` and remove it, then `tidewheel dlq redrive`; "
            "`tidewheel dlq discard` gives the event up and lets the later ones go.",
        ),
        KnownAlert(
            name="PROJECTOR_GAP_DETECTED",
            severity="P1",
            meaning="Events of a run did not reach the projector. The run's snapshot is stale until they "
            "have been fetched from the store, which the projector does by itself.",
            action="If the run stays stale, run `tidewheel projector rebuild`. If alerts go on, look for "
            "what loses messages: a queue that was purged or deleted, or a policy that drops from it.",
        ),
        KnownAlert(
            name="PROJECTOR_LAG_HIGH",
            severity="P2",
            meaning="Snapshots are more than five seconds behind what happened.",
            action="See that relays, projectors and RabbitMQ are up. If they are, they have more to do than "
            "they can: start more of them.",
        ),
    )
}

#: The same alert gives the same bytes, in whatever order its details were written.
_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_decode: Final = msgspec.json.Decoder(Alert).decode


def alert_of(
    name: str,
    *,
    namespace: str,
    summary: str,
    raised_at: dt.datetime,
    run_id: str | None = None,
    details: dict[str, Any] | None = None,
) -> Alert:
    """Return the known alert *name* as it is raised now; severity and action are the table's."""
    known = KNOWN_ALERTS[name]
    return Alert(
        alert=known.name,
        severity=known.severity,
        namespace=namespace,
        run_id=run_id,
        summary=summary,
        action=known.action,
        details=details or {},
        raised_at=raised_at,
    )


def publication_of_alert(alert: Alert) -> Publication:
    """Address *alert* to whoever has bound a queue for its topic."""
    body = _encode(alert)
    alert_id = event_id(hashlib.sha256(body).hexdigest())
    headers = headers_of(
        id=alert_id,
        type=alert.alert,
        namespace=alert.namespace,
        subject=alert.run_id,
        time=alert.raised_at,
    )
    message = Message(body=body, message_id=alert_id, headers=headers, content_type=JSON)
    return Publication(message=message, exchange=ALERTS, routing_key=f"{alert.namespace}.{alert.alert}")


def read_alert(message: Message) -> Alert:
    """Return the alert, or raise ``PoisonMessage`` with what is wrong with it."""
    try:
        return _decode(message.body)
    except _NOT_READABLE as error:
        raise PoisonMessage(f"not an alert: {error}") from None
