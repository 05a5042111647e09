"""Whether this process tells anything: ``active`` is None unless it does.

Everybody else asks ``switch.active``, and does nothing further where that is None: so what is off costs one
look at a name. OpenTelemetry is imported when it is turned on, not before; it is an extra,
``tidewheel[otel]``, and who asks for it without having it is told so, and goes on without.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidewheel.telemetry.recorder import Recorder

logger = logging.getLogger("tidewheel.telemetry")

#: What takes spans and figures, while it is on.
active: Recorder | None = None

#: What each kind of telemetry may be asked for by: its exporter, and where OTLP sends it.
ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
KINDS: Final = {
    "traces": ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
    "metrics": ("OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
}
DISABLED: Final = "OTEL_SDK_DISABLED"
OTLP: Final = "otlp"
_NONE: Final = "none"


def exporters(variables: Mapping[str, str]) -> dict[str, list[str]]:
    """Return which exporters the *variables* ask for, by kind of telemetry; nothing where it is to be off.

    An exporter that is not named is OTLP where an endpoint is, and else there is none.
    """
    if variables.get(DISABLED, "").strip().lower() == "true":
        return {}
    wanted: dict[str, list[str]] = {}
    for kind, (exporter, endpoint) in KINDS.items():
        named = [name.strip() for name in variables.get(exporter, "").split(",") if name.strip()]
        if not named and (variables.get(endpoint, "").strip() or variables.get(ENDPOINT, "").strip()):
            named = [OTLP]
        names = [name for name in named if name.lower() != _NONE]
        if names:
            wanted[kind] = names
    return wanted


def turn_on(recorder: Recorder) -> None:
    """Tell everything to *recorder* from now on."""
    global active  # noqa: PLW0603 - a process has one, and asking for it must cost nothing
    active = recorder


def turn_off() -> None:
    """Tell nothing any more, after what was told is sent. May be called twice."""
    global active
    recorder, active = active, None
    if recorder is not None:
        recorder.close()


def turn_on_as_told(variables: Mapping[str, str], *, service: str, is_own_process: bool) -> bool:
    """Turn telemetry on if *variables*, or the program around us, ask for it; tell whether it is on then.

    A program that has set up OpenTelemetry is told what we have to tell. Else it is set up here, for all of
    the process where that *is* our *own*, and for us alone where it is somebody else's.
    """
    if active is not None:
        return True
    wanted = exporters(variables)
    is_disabled = variables.get(DISABLED, "").strip().lower() == "true"
    if not wanted and (is_disabled or not _is_set_up_by_program()):
        return False
    try:
        from tidewheel.telemetry import providers  # noqa: PLC0415 - OpenTelemetry, which is not for everybody
    except ImportError as problem:
        logger.warning(
            "telemetry is asked for, and OpenTelemetry is not installed (%s); it stays off. "
            "Install it with: pip install 'tidewheel[otel]'",
            problem,
        )
        return False
    turn_on(providers.recorder(wanted, variables, service=service, is_own_process=is_own_process))
    return True


def _is_set_up_by_program() -> bool:
    """Tell whether the program around us has given OpenTelemetry somewhere to send traces to."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        return False
    provider = api.get_tracer_provider()
    return not isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider)
