"""Takes what a process tells: spans, figures, and where the runs it works on are in their traces."""

from __future__ import annotations

from collections.abc import Callable

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from tidewheel.telemetry.context import TraceContext
from tidewheel.telemetry.meters import Meters
from tidewheel.telemetry.runs import RunTraces
from tidewheel.telemetry.spans import Ids, Spans, current, go_on_from


class Recorder:
    """See the module. *closing* sends what was told, and ends what was set up for us."""

    def __init__(
        self,
        tracer_provider: TracerProvider,
        meter_provider: MeterProvider,
        *,
        version: str = "",
        ids: Ids | None = None,
        closing: Callable[[], None] = lambda: None,
    ) -> None:
        self.spans = Spans(tracer_provider, ids, version)
        self.meters = Meters(meter_provider, version)
        self.runs = RunTraces()
        #: What carries messages here, as the semantic conventions call it.
        self.system = "tidewheel"
        self._closing = closing

    def current(self) -> TraceContext | None:
        """Return the context of the span that the caller is in; None if it is in none."""
        return current()

    def go_on_from(self, trace: TraceContext) -> None:
        """Let what the caller begins be in *trace*, which was begun in another process."""
        go_on_from(trace)

    def close(self) -> None:
        """Send what was told."""
        self._closing()
