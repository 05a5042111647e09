"""Telemetry is off unless something asks for it, and what asks is answered even where it cannot be had."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tidewheel.telemetry import names, providers, switch

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, {}),
        ({"OTEL_SERVICE_NAME": "shop"}, {}),
        (ENDPOINT, {"traces": ["otlp"], "metrics": ["otlp"]}),
        (ENDPOINT | {"OTEL_METRICS_EXPORTER": "none"}, {"traces": ["otlp"]}),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "None", "OTEL_METRICS_EXPORTER": "none"}, {}),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "True"}, {}),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "false"}, {"traces": ["otlp"], "metrics": ["otlp"]}),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, {"traces": ["otlp"]}),
        ({"OTEL_TRACES_EXPORTER": "console"}, {"traces": ["console"]}),
        ({"OTEL_TRACES_EXPORTER": " otlp , console"}, {"traces": ["otlp", "console"]}),
        ({"OTEL_METRICS_EXPORTER": "console"}, {"metrics": ["console"]}),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " ", "OTEL_TRACES_EXPORTER": ""}, {}),
    ],
)
def test_the_variables_say_what_is_sent_where(
    variables: dict[str, str], wanted: dict[str, list[str]]
) -> None:
    """An exporter that is not named is OTLP where there is an endpoint, and none where there is not."""
    assert switch.exporters(variables) == wanted


def test_what_nobody_asks_for_stays_off() -> None:
    """Without a variable, and without a program that has set up OpenTelemetry, nothing is turned on."""
    assert not switch.turn_on_as_told({}, service="test", is_own_process=False)
    assert switch.active is None


def test_who_asks_without_having_it_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays off, and everything else goes on."""
    monkeypatch.delitem(sys.modules, "tidewheel.telemetry.providers", raising=False)
    monkeypatch.delattr("tidewheel.telemetry.providers", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with caplog.at_level(logging.WARNING, "tidewheel.telemetry"):
        is_on = switch.turn_on_as_told(ENDPOINT, service="test", is_own_process=False)

    assert not is_on
    assert switch.active is None
    assert "pip install 'tidewheel[otel]'" in caplog.text


class StuckExporter(InMemorySpanExporter):
    """An exporter whose collector does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Wait, for longer than anybody should."""
        self.gate.wait()
        return super().export(spans)


def test_a_collector_that_is_away_does_not_keep_a_process_from_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was told last is tried to be sent for a moment, and then dropped, with a word."""
    exporter = StuckExporter()
    monkeypatch.setattr(providers, "_found", lambda kind, *_: [lambda: exporter] if kind == "traces" else [])
    monkeypatch.setattr(providers, "CLOSE_S_MAX", 0.05)
    recorder = providers.recorder({"traces": ["stuck"]}, {}, service="test", is_own_process=False)
    recorder.spans.begin(names.CANCEL).end()

    recorder.close()
    exporter.gate.set()

    assert "what was not sent yet is dropped" in caplog.text


def test_an_exporter_that_is_not_installed_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """The line says which there are; telemetry is on for whatever can be had."""
    variables = {"OTEL_TRACES_EXPORTER": "pigeon"}
    try:
        is_on = switch.turn_on_as_told(variables, service="test", is_own_process=False)
    finally:
        switch.turn_off()

    assert is_on
    assert "no exporter 'pigeon' for traces" in caplog.text
    assert "console" in caplog.text
