"""How large things may get, and the refusals at the door.

A payload is measured as the JSON that the journal will hold. What is too large is refused where
it enters, by whoever brings it, with what to do instead: later nobody could do anything about it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.events import Json
from tidewheel.sdk.settings import Key, Settings, Unit

_KIB = 1024
_MIB = 1024 * 1024

_encode = msgspec.json.Encoder().encode


class Limits(Settings, frozen=True, kw_only=True):
    """How large payloads and histories may get."""

    payload_max_bytes: Annotated[
        int,
        Key(
            "TIDEWHEEL_PAYLOAD_MAX_BYTES",
            "The largest input, result or value of a promise, as JSON.",
            Unit.BYTES,
            least=_KIB,
        ),
    ] = 2 * _MIB
    signal_max_bytes: Annotated[
        int,
        Key(
            "TIDEWHEEL_SIGNAL_MAX_BYTES", "The largest payload of a signal, as JSON.", Unit.BYTES, least=_KIB
        ),
    ] = 64 * _KIB
    history_warning_events: Annotated[
        int,
        Key(
            "TIDEWHEEL_HISTORY_WARNING_EVENTS",
            "A journal this long is warned about: the workflow should continue as new.",
            Unit.EVENTS,
            least=100,
        ),
    ] = 50_000
    history_max_events: Annotated[
        int,
        Key(
            "TIDEWHEEL_HISTORY_MAX_EVENTS",
            "A journal this long takes no more work: its run fails.",
            Unit.EVENTS,
            least=100,
        ),
    ] = 1_000_000

    def is_small(self, data: Json) -> bool:
        """Tell whether *data* is far below any limit, as far as that can be seen at a glance."""
        if type(data) is not list:
            return _is_tiny(data)
        return len(data) <= _FEW and all(map(_is_tiny, data))

    def check_payload(self, data: Json, what: str) -> None:
        """Refuse *data* over the limit for payloads; *what* is how the caller knows it."""
        _refuse_larger(data, self.payload_max_bytes, what, "TIDEWHEEL_PAYLOAD_MAX_BYTES")

    def check_signal(self, data: Json, what: str) -> None:
        """Refuse *data* over the limit for signals."""
        _refuse_larger(data, self.signal_max_bytes, what, "TIDEWHEEL_SIGNAL_MAX_BYTES")


#: A list of so many items, which are each so short, is below the least limit whatever is in it.
_FEW, _SHORT, _MANY = 8, 16, 10**18
_TINY = frozenset({bool, float, type(None)})


def _is_tiny(item: Json) -> bool:
    kind = type(item)
    return kind in _TINY or (kind is int and -_MANY < item < _MANY) or (kind is str and len(item) <= _SHORT)


def _refuse_larger(data: Json, max_bytes: int, what: str, variable: str) -> None:
    size_bytes = len(_encode(data))
    if size_bytes > max_bytes:
        raise InvalidRequest(
            f"{what} is {size_bytes:,} bytes of JSON, and the limit is {max_bytes:,}: store it elsewhere and "
            f"pass a reference to it, or raise {variable} everywhere"
        )
