"""Where spans and figures are sent, as the ``OTEL_*`` variables say, or as the program around us does.

Exporters are found by their names among what is installed: ``otlp`` (over HTTP, unless the protocol says
``grpc`` and its exporter is installed too), ``console``, and others that are installed. One that cannot be
had is told of, and the rest goes on. All else, such as samplers, headers and intervals, the SDK reads itself.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Any, Final

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from tidewheel.telemetry.recorder import Recorder
from tidewheel.telemetry.spans import Ids

logger = logging.getLogger("tidewheel.telemetry")

#: How long what was told last may take to be sent, when the process ends.
CLOSE_S_MAX: Final = 2.0
#: The group in which each kind of exporter is installed.
_GROUPS: Final = {"traces": "opentelemetry_traces_exporter", "metrics": "opentelemetry_metrics_exporter"}
#: What the SDK calls a service that nobody has named.
_SERVICE: Final = "service.name"
_UNNAMED: Final = "unknown_service"
_PROTOCOLS: Final = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


def recorder(
    wanted: Mapping[str, Sequence[str]], variables: Mapping[str, str], *, service: str, is_own_process: bool
) -> Recorder:
    """Return what tells to the exporters that are *wanted*; to those of the program where it has some."""
    is_theirs = not isinstance(
        trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider
    )
    if is_theirs:
        return Recorder(trace.get_tracer_provider(), metrics.get_meter_provider(), version=_version())
    ids = Ids()
    resource = Resource.create()
    if str(resource.attributes.get(_SERVICE, "")).startswith(_UNNAMED):
        resource = resource.merge(Resource({_SERVICE: service}))
    tracers = TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)
    for exporter in _found("traces", wanted.get("traces", ()), variables):
        tracers.add_span_processor(BatchSpanProcessor(exporter()))
    readers: list[MetricReader] = [
        PeriodicExportingMetricReader(exporter())
        for exporter in _found("metrics", wanted.get("metrics", ()), variables)
    ]
    meters = MeterProvider(readers, resource, shutdown_on_exit=False)
    if is_own_process:
        trace.set_tracer_provider(tracers)
        metrics.set_meter_provider(meters)

    def close() -> None:
        atexit.unregister(close)
        _end(tracers.shutdown, meters.shutdown)

    atexit.register(close)
    return Recorder(tracers, meters, version=_version(), ids=ids, closing=close)


def _end(*endings: Callable[[], None]) -> None:
    """Do *endings*, side by side; a collector that is away must not keep a process from its end for long."""
    threads = [threading.Thread(target=ending, name="tidewheel-telemetry", daemon=True) for ending in endings]
    for thread in threads:
        thread.start()
    until_s = time.monotonic() + CLOSE_S_MAX
    for thread in threads:
        thread.join(max(until_s - time.monotonic(), 0.0))
    if any(thread.is_alive() for thread in threads):
        logger.warning("what was not sent yet is dropped: the collector did not take it in %g s", CLOSE_S_MAX)


def _found(kind: str, names: Sequence[str], variables: Mapping[str, str]) -> list[Callable[[], Any]]:
    """Return the exporters of these *names* that are installed."""
    found: list[Callable[[], Any]] = []
    for name in names:
        sought = name
        if name == "otlp":
            protocol = variables.get(f"OTEL_EXPORTER_OTLP_{kind.upper()}_PROTOCOL") or variables.get(
                "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
            )
            sought = _PROTOCOLS.get(protocol, protocol)
        installed = list(entry_points(group=_GROUPS[kind], name=sought))
        if not installed:
            known = sorted(entry.name for entry in entry_points(group=_GROUPS[kind]))
            logger.warning(
                "there is no exporter %r for %s; there are: %s. "
                "Install the one you want, or pip install 'tidewheel[otel]' for OTLP over HTTP",
                sought,
                kind,
                ", ".join(known) or "none",
            )
            continue
        try:
            found.append(installed[0].load())
        except ImportError as problem:
            logger.warning("the exporter %r for %s cannot be used: %s", sought, kind, problem)
    return found


def _version() -> str:
    try:
        return version("tidewheel")
    except PackageNotFoundError:
        return ""
