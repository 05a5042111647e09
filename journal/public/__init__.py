"""What the outside is told of a run: a pure fold from journal entries to public events."""

from tidewheel.journal.public.event import PUBLIC_TYPES, PublicEvent, event_id, idempotency_key, key_text
from tidewheel.journal.public.fold import PublicFold
from tidewheel.journal.public.table import HANDLERS, publish, published

__all__ = [
    "HANDLERS",
    "PUBLIC_TYPES",
    "PublicEvent",
    "PublicFold",
    "event_id",
    "idempotency_key",
    "key_text",
    "publish",
    "published",
]
