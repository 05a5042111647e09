"""The context of a trace as text: what stands in headers, in the journal and in the outbox.

It is W3C Trace Context, which anybody may have written: what is not of that form counts as absent. Pure, and
without OpenTelemetry: whoever only carries a context does not need it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

#: The headers of a message, whose context is that of whoever sent it; and what stands in front of them in
#: those of CloudEvents, whose context is that of whatever the event tells of.
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
CLOUDEVENTS: Final = "ce-"
#: A longer state is left out, as the standard allows.
STATE_MAX: Final = 512

_FORM: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.{0,100})?", re.ASCII)
_STATE_FORM: Final = re.compile(r"[\x20-\x7e]*", re.ASCII)
_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16
#: The version whose form is known; of a later one as much is taken as this has.
_VERSION: Final = "00"
_INVALID_VERSION: Final = "ff"
_LENGTH: Final = 55


class TraceContext(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A span, and the trace it is in, for whoever goes on from there."""

    traceparent: str
    tracestate: str = ""

    @property
    def trace_id(self) -> str:
        """The trace, as 32 hexadecimal digits."""
        return self.traceparent[3:35]

    @property
    def span_id(self) -> str:
        """The span, as 16 hexadecimal digits."""
        return self.traceparent[36:52]


def made_of(traceparent: object, tracestate: object = "") -> TraceContext | None:
    """Return the context that two texts come to; None if they are none, whatever they are."""
    if not isinstance(traceparent, str):
        return None
    found = _FORM.fullmatch(traceparent)
    if found is None or traceparent.startswith(_INVALID_VERSION):
        return None
    if found[1] == _NO_TRACE or found[2] == _NO_SPAN:
        return None
    if traceparent.startswith(_VERSION) and len(traceparent) != _LENGTH:
        return None
    state = tracestate if isinstance(tracestate, str) and len(tracestate) <= STATE_MAX else ""
    return TraceContext(
        _VERSION + traceparent[2:_LENGTH], state if _STATE_FORM.fullmatch(state) is not None else ""
    )


def of_headers(headers: Mapping[str, str], prefix: str = "") -> TraceContext | None:
    """Return the context that the *headers* of a message have, if they have one."""
    traceparent = headers.get(prefix + TRACEPARENT)
    return None if traceparent is None else made_of(traceparent, headers.get(prefix + TRACESTATE, ""))


def headers_of(trace: TraceContext | None, prefix: str = "") -> dict[str, str]:
    """Return the headers that carry *trace*: none, if there is none."""
    if trace is None:
        return {}
    headers = {prefix + TRACEPARENT: trace.traceparent}
    if trace.tracestate:
        headers[prefix + TRACESTATE] = trace.tracestate
    return headers
