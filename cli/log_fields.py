"""The fields of a log record beside its text: which run, step and attempt it is about, and where in a trace.

They come from three places: what the record says itself (``extra={"fields": {...}}``), what is among its
arguments and knows its fields (a run, an attempt), and the task in whose body it was written, by whomever.
The ids of the trace are those of the current span, or else of the run that the record is about.
"""

from __future__ import annotations

import logging
from typing import Any

from tidewheel.sdk.current_task import log_fields
from tidewheel.telemetry import switch
from tidewheel.telemetry.context import TraceContext


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return what *record* says in fields of its own; it is being written in the place it is about."""
    fields: dict[str, Any] = log_fields()
    about = [getattr(record, "run", None), *(record.args if isinstance(record.args, tuple) else ())]
    known = [one for one in about if hasattr(one, "log_fields")]
    for one in known:
        fields |= one.log_fields()
    fields |= getattr(record, "fields", {})
    trace = _trace(known)
    if trace is not None:
        fields |= {"trace_id": trace.trace_id, "span_id": trace.span_id}
    return fields


def _trace(known: list[Any]) -> TraceContext | None:
    """Return where in a trace a record is written, or the run that it is about is."""
    recorder = switch.active
    if recorder is None:
        return None
    found = recorder.current()
    for one in known:
        found = found or recorder.runs.latest(getattr(one, "run", one))
    return found
