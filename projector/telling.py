"""What a projector tells: a span for events that are taken in together, and figures.

The span links to those of the relays that published the events: what a projector does is later, and for many
runs at once. Nothing here runs unless telemetry is on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from tidewheel.broker.topology import EVENTS
from tidewheel.projector.arrivals import Arrival
from tidewheel.telemetry import names, switch
from tidewheel.telemetry.context import CLOUDEVENTS, TraceContext, of_headers

if TYPE_CHECKING:
    from tidewheel.projector.projector import Projector
    from tidewheel.telemetry.recorder import Recorder

_NOTHING: Final = nullcontext()


def observe(projector: Projector) -> None:
    """Let the figures of *projector* be read, if telemetry is on."""
    if switch.active is None:
        return
    meters = switch.active.meters
    meters.observe(names.PROJECTOR_EVENTS, projector, _events)
    meters.observe(names.PROJECTOR_GAPS, projector, lambda one: [(one.pipeline.gaps, {})])
    meters.observe(names.PROJECTOR_LAG, projector, lambda one: [(one.lag.seconds, {})])


def _events(projector: Projector) -> list[tuple[float, dict[str, str]]]:
    pipeline = projector.pipeline
    told = {"taken": pipeline.taken, "repeated": pipeline.repeated, "buried": pipeline.buried}
    return [(value, {names.OUTCOME: outcome}) for outcome, value in told.items()]


def projecting(arrivals: Sequence[Arrival]) -> AbstractContextManager[None]:
    """Tell of *arrivals*, which are projected while the block lasts."""
    recorder = switch.active
    return _NOTHING if recorder is None or not arrivals else _told(recorder, arrivals)


@contextmanager
def _told(recorder: Recorder, arrivals: Sequence[Arrival]) -> Iterator[None]:
    links: dict[TraceContext, None] = {}
    for arrival in arrivals:
        headers = arrival.delivery.message.headers
        trace = of_headers(headers) or of_headers(headers, CLOUDEVENTS)
        if trace is not None:
            links[trace] = None
    attributes = {
        names.SYSTEM: recorder.system,
        names.OPERATION: "process",
        names.OPERATION_TYPE: "process",
        names.DESTINATION: EVENTS,
    }
    span = recorder.spans.begin(
        names.PROJECT, links=links, attributes=attributes | {names.BATCH: len(arrivals)}
    )
    token = span.enter()
    error: BaseException | None = None
    try:
        yield
    except BaseException as problem:
        error = problem
        raise
    finally:
        span.leave(token)
        told = attributes if error is None else attributes | {names.ERROR_TYPE: type(error).__name__}
        recorder.meters.record(names.PROCESS_DURATION, told, span.seconds())
        span.end(*(() if error is None else (type(error).__name__, str(error))))
