"""What the outside is told of a run: a pure fold from journal entries to public events."""

from tidewheel.journal.public.event import (
    PUBLIC_TYPES,
    RUN,
    PublicEvent,
    event_id,
    idempotency_key,
)
from tidewheel.journal.public.fold import PublicFold, Step
from tidewheel.journal.public.table import HANDLERS, publish, published

__all__ = [
    "HANDLERS",
    "PUBLIC_TYPES",
    "RUN",
    "PublicEvent",
    "PublicFold",
    "Step",
    "event_id",
    "idempotency_key",
    "publish",
    "published",
]
