"""Spans: begun with the context they go on from, known by that context to others, and ended once.

Rule: a span is told of when it is ended. One that is dropped instead, as that of a turn which was not
committed, was never there. A span of which *identity* is given has an id that is made of it, if the ids are
ours to make: were it told of twice, it would be the same span.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from opentelemetry import trace as api
from opentelemetry.context import Context, attach, detach
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.span import TraceState

from tidewheel.telemetry.context import TraceContext
from tidewheel.telemetry.names import ERROR_TYPE, SpanName

#: More links than this say nothing more; the rest of a batch is told by its number.
LINKS_MAX: Final = 64
_KINDS: Final = {
    "CLIENT": SpanKind.CLIENT,
    "PRODUCER": SpanKind.PRODUCER,
    "CONSUMER": SpanKind.CONSUMER,
    "INTERNAL": SpanKind.INTERNAL,
}


class Ids(RandomIdGenerator):
    """Random ids, but for spans of which the next one is said; each thread says its own."""

    def __init__(self) -> None:
        self._said = threading.local()

    def say(self, trace_id: int, span_id: int) -> None:
        """The next span has this id, and this trace if it begins one."""
        self._said.ids = (trace_id, span_id)

    def forget(self) -> None:
        """The next span is like any other."""
        self._said.ids = None

    def generate_trace_id(self) -> int:
        """Return the id that was said, or a random one."""
        ids: tuple[int, int] | None = getattr(self._said, "ids", None)
        return super().generate_trace_id() if ids is None else ids[0]

    def generate_span_id(self) -> int:
        """Return the id that was said, or a random one."""
        ids: tuple[int, int] | None = getattr(self._said, "ids", None)
        return super().generate_span_id() if ids is None else ids[1]


class OpenSpan:
    """A span that has begun."""

    __slots__ = ("_began_s", "_span", "trace")

    def __init__(self, span: api.Span, began_ns: int | None = None) -> None:
        self._span = span
        self._began_s = time.perf_counter()
        if began_ns is not None:
            self._began_s -= max(time.time_ns() - began_ns, 0) / 1e9
        #: What others need to go on from it.
        self.trace = context_of(span.get_span_context())

    def seconds(self) -> float:
        """How long ago it was begun."""
        return time.perf_counter() - self._began_s

    def enter(self) -> Any:
        """Make it the current one, for whatever is begun in this context; return what ``leave`` takes."""
        return attach(api.set_span_in_context(self._span))

    def leave(self, token: Any) -> None:
        """Let that be current which was before."""
        detach(token)

    def say(self, attributes: Mapping[str, Any]) -> None:
        """Add what is known only now."""
        self._span.set_attributes(attributes)

    def end(self, error: str | None = None, why: str = "") -> None:
        """It is over; *error* is of what type it failed, if it did."""
        if error is not None:
            self._span.set_attribute(ERROR_TYPE, error)
            self._span.set_status(Status(StatusCode.ERROR, why or error))
        self._span.end()


class Spans:
    """Begins spans with the tracer of *provider*, whose *ids* are ours if they are given."""

    def __init__(self, provider: api.TracerProvider, ids: Ids | None, version: str) -> None:
        self._tracer = provider.get_tracer("tidewheel", version)
        self._ids = ids

    def begin(  # noqa: PLR0913 - what a span is made of
        self,
        name: SpanName,
        about: str = "",
        *,
        parent: TraceContext | None = None,
        links: Iterable[TraceContext] = (),
        attributes: Mapping[str, Any] | None = None,
        identity: str | None = None,
        began_ns: int | None = None,
    ) -> OpenSpan:
        """Begin a span as a child of *parent*, or of its own trace without one."""
        context = Context()
        if parent is not None:
            context = api.set_span_in_context(NonRecordingSpan(span_context_of(parent)), context)
        if self._ids is not None and identity is not None:
            self._ids.say(*_ids_of(identity))
        try:
            span = self._tracer.start_span(
                name.of(about) if about else name.name,
                context=context,
                kind=_KINDS[name.kind],
                attributes=attributes,
                links=[Link(span_context_of(one)) for one in list(links)[:LINKS_MAX]],
                start_time=began_ns,
            )
        finally:
            if self._ids is not None:
                self._ids.forget()
        return OpenSpan(span, began_ns)


def go_on_from(trace: TraceContext) -> None:
    """Let what is begun in this context be in *trace*."""
    attach(api.set_span_in_context(NonRecordingSpan(span_context_of(trace))))


def current() -> TraceContext | None:
    """Return the context of the current span, whoever began it; None if there is none."""
    found = api.get_current_span().get_span_context()
    return context_of(found) if found.is_valid else None


def context_of(span: SpanContext) -> TraceContext:
    """Return *span* as text."""
    traceparent = f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    return TraceContext(traceparent, span.trace_state.to_header() if span.trace_state else "")


def span_context_of(trace: TraceContext) -> SpanContext:
    """Return what OpenTelemetry makes of *trace*."""
    return SpanContext(
        trace_id=int(trace.trace_id, 16),
        span_id=int(trace.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(trace.traceparent[53:55], 16)),
        trace_state=TraceState.from_header([trace.tracestate]) if trace.tracestate else TraceState(),
    )


def _ids_of(identity: str) -> tuple[int, int]:
    """Return the ids of a trace and a span, which are not zero, made of *identity*."""
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:24], "big") or 1
