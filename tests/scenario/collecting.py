"""A collector of OpenTelemetry's protocol over HTTP, as far as tests look at what processes send it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A span that a process sent."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    links: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)


class Collector:
    """Listens on a port of its own while the block lasts, and keeps what it is sent."""

    def __init__(self) -> None:
        self.spans: list[Sent] = []
        self.metrics: set[str] = set()
        self._changed = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            """Takes one request."""

            def do_POST(self) -> None:
                """Take what is sent."""
                collector.take(self.path, self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def variables(self) -> dict[str, str]:
        """What tells a process to send everything here, soon."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._server.server_address[1]}",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
        }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, path: str, body: bytes) -> None:
        """Keep what was sent to *path*."""
        with self._changed:
            if path == "/v1/traces":
                self.spans += _spans(ExportTraceServiceRequest.FromString(body))
            else:
                request = ExportMetricsServiceRequest.FromString(body)
                self.metrics |= {
                    metric.name
                    for resource in request.resource_metrics
                    for scope in resource.scope_metrics
                    for metric in scope.metrics
                }
            self._changed.notify_all()

    def wait_until(self, is_there: Callable[[], bool]) -> None:
        """Return when *is_there* says so."""
        with self._changed:
            found = self._changed.wait_for(is_there, PATIENCE_S)
        assert found, sorted({(span.service, span.name) for span in self.spans})


def _spans(request: ExportTraceServiceRequest) -> list[Sent]:
    found = []
    for resource in request.resource_spans:
        named = {one.key: one.value.string_value for one in resource.resource.attributes}
        for scope in resource.scope_spans:
            found += [
                Sent(
                    service=named["service.name"],
                    name=span.name,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    links=tuple(link.span_id.hex() for link in span.links),
                    attributes={
                        one.key: getattr(one.value, one.value.WhichOneof("value") or "string_value")
                        for one in span.attributes
                    },
                )
                for span in scope.spans
            ]
    return found
