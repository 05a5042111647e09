"""What was told, kept in memory: for tests of those who tell it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tidewheel.telemetry import names
from tidewheel.telemetry.recorder import Recorder
from tidewheel.telemetry.spans import Ids


class Recording:
    """A recorder, and what it was told."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        ids = Ids()
        self.tracers = TracerProvider(id_generator=ids, shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.recorder = Recorder(self.tracers, meters, ids=ids, closing=meters.shutdown)

    def spans(self, name: str | None = None) -> list[ReadableSpan]:
        """Return the spans that have ended, or those of one name, in the order in which they did."""
        return [span for span in self._exporter.get_finished_spans() if name in (None, span.name)]

    def span(self, name: str) -> ReadableSpan:
        """Return the one span of this name."""
        (found,) = self.spans(name)
        return found

    def attempts(self) -> list[tuple[Any, Any]]:
        """Return the path and the number of each attempt that was told of."""
        return [
            (attributes(span)[names.STEP], attributes(span)[names.ATTEMPT])
            for span in self.spans()
            if span.name.startswith("task ")
        ]

    def figures(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        """Return the points of each metric: what tells them apart, and the value or the sum."""
        data = self._reader.get_metrics_data()
        found: dict[str, list[tuple[dict[str, Any], Any]]] = {}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points: Iterable[Any] = metric.data.data_points
                    found[metric.name] = [
                        (dict(point.attributes), point.value if hasattr(point, "value") else point.count)
                        for point in points
                    ]
        return found


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return what *span* says."""
    return dict(span.attributes or {})


def trace_id(span: ReadableSpan) -> int:
    """Return the trace that *span* is in."""
    assert span.context is not None
    return int(span.context.trace_id)


def span_id(span: ReadableSpan) -> int:
    """Return the id of *span*."""
    assert span.context is not None
    return int(span.context.span_id)


def parent_id(span: ReadableSpan) -> int | None:
    """Return the id of what *span* is a child of; None if it is of nothing."""
    return None if span.parent is None else span.parent.span_id


def linked(span: ReadableSpan) -> set[int]:
    """Return the ids of the spans that *span* links to."""
    return {link.context.span_id for link in span.links}
