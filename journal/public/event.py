"""The shape and the identity of a public event: what consumers of the bus rely on.

The names are the execution contract's. The key says what happened, never how
often the platform tried it: ``SHA256(runId|stepId|logicalAttemptId|eventType|
planVersion)``, and the event's id is made of the key, so whoever publishes an
event again publishes the same one. Which events a journal gives is in ``table``.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import Final

import msgspec

from tidewheel.journal.events import Json

#: The step of run events in keys. In the event itself their ``step_id`` is null.
RUN: Final = "RUN"

#: The contract's event types, and what ``data`` holds. A decider's event cannot have such a name.
PUBLIC_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "RunApproved": (),
    "RunStarted": ("input",),
    "StepStarted": (),
    "StepCompleted": ("result",),
    "StepFailed": ("error",),
    "StepSkipped": ("reason",),
    "SignalAccepted": ("signalName", "principal"),
    "SignalRejected": ("signalName", "principal", "reason"),
    "RunPaused": (),
    "RunResumed": (),
    "RunCompleted": ("result",),
    "RunFailed": ("error",),
    "RunCancelled": ("reason",),
}


class PublicEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing that happened to a run or to a step of it, as the event bus tells it."""

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
    data: Json = None
    idempotency_key: str

    @property
    def id(self) -> str:
        """The event's id everywhere: the UUID made of the key's first 16 bytes."""
        return event_id(self.idempotency_key)

    def routing_key(self, namespace: str) -> str:
        """Return the topic the event is published under."""
        return f"{namespace}.{self.workflow}.{self.event_type}"


def idempotency_key(run_id: str, step: str, logical_attempt: int, event_type: str, plan_version: str) -> str:
    """Return the contract's key: SHA-256 of the parts in UTF-8 joined by ``|``, in lower-case hex."""
    text = f"{run_id}|{step}|{logical_attempt}|{event_type}|{plan_version}"
    return hashlib.sha256(text.encode()).hexdigest()


def event_id(key: str) -> str:
    """Return the UUID made of the first 16 bytes of *key*."""
    return f"{key[:8]}-{key[8:12]}-{key[12:16]}-{key[16:20]}-{key[20:32]}"
