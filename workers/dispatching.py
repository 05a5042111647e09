"""What becomes of the moves of an activation: which step goes where.

*Inline*: this worker has the function and room for it, so it executes it after the commit, without a
queue in between. *Queued*: it is published to the step's queue. A step with a queue other than its run's
is always queued: who takes over the run need not serve that queue. A child run is started by the same
commit. The choice is recorded on the event.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tidewheel.journal import events as ev
from tidewheel.journal.errors import InvalidRequest
from tidewheel.replay.execution import Activation, Execution
from tidewheel.sdk.limits import Limits
from tidewheel.store.append import ChildStart, Completed, Fact
from tidewheel.workers.lanes import Kind, kind_of
from tidewheel.workers.services import Services

logger = logging.getLogger("tidewheel.workers")

_CLOSING = frozenset((*ev.TERMINAL, ev.ExecutionContinued))
_TIMERS = frozenset((ev.TimerScheduled, ev.TimerCancelled))


class Orders(msgspec.Struct, eq=False):
    """The events to append, and what to do once they are committed."""

    #: The run's own.
    queue: str
    events: list[ev.Event] = []
    inline: list[ev.InvokeScheduled] = []
    #: What executes each of *inline*.
    kinds: list[Kind] = []
    children: dict[str, ChildStart] = {}
    #: What can be said at once of steps that nobody could execute.
    facts: list[Fact] = []
    #: Those of *events* that arm or disarm a timer.
    timers: list[ev.Event] = []
    #: Whether the run, or a segment of it, is over; and whether another segment begins.
    ends: bool = False
    continues: bool = False


def give_orders(
    services: Services, execution: Execution, activation: Activation | None, *, seq: int, queue: str
) -> Orders:
    """Decide about everything the code asked for; *seq* is its journal's last event, *queue* its run's."""
    orders = Orders(queue=queue)
    if activation is None:
        return orders
    events, limits = activation.events, services.limits
    refused = None
    if seq + len(events) > limits.history_warning_events:
        refused = _too_long(services, execution, seq, seq + len(events))
    refused = refused or _too_large(limits, events)
    if refused is not None:
        orders.events, orders.ends = [refused], True
        return orders
    for event in events:
        kind = type(event)
        if isinstance(event, ev.InvokeScheduled):
            event = _decide(services, orders, event)  # noqa: PLW2901 - what is appended is what was decided
        elif kind in _TIMERS:
            orders.timers.append(event)
        elif kind in _CLOSING:
            orders.ends = True
            orders.continues = orders.continues or kind is ev.ExecutionContinued
        orders.events.append(event)
    return orders


def _decide(services: Services, orders: Orders, event: ev.InvokeScheduled) -> ev.InvokeScheduled:
    if event.kind == "workflow":
        _start_child(services, orders, event)
        return event
    is_here = event.kind == "operation" or event.function_name in services.app.tasks
    if not is_here and _is_ours(services, event):
        event = replace(event, dispatch="inline")
        orders.facts.append(not_included(services, event, "task"))
        return event
    if event.queue is not UNSET and event.queue != orders.queue:
        is_here = False  # it is meant for other workers, with other resources, though this may be one of them
    may_queue = event.kind != "operation"
    kind = kind_of(services.app.tasks.get(event.function_name))
    has_room = services.runner.has_room(kind, orders.kinds) and not services.stopping.is_set()
    if may_queue and (event.dispatch == "queued" or not is_here or not has_room):
        return replace(event, dispatch="queued")
    if event.dispatch != "inline":
        event = replace(event, dispatch="inline")
    orders.inline.append(event)
    orders.kinds.append(kind)
    return event


def _start_child(services: Services, orders: Orders, event: ev.InvokeScheduled) -> None:
    definition = services.app.workflows.get(event.function_name)
    if definition is None and _is_ours(services, event):
        orders.facts.append(not_included(services, event, "workflow"))
        return
    orders.children[event.promise_id] = ChildStart(
        workflow=event.function_name,
        version="" if definition is None else definition.version,
        digest="" if definition is None else definition.digest,
    )


def _is_ours(services: Services, event: ev.InvokeScheduled) -> bool:
    """Tell whether the workers of this app are the only ones that could execute the step."""
    return event.queue is UNSET or event.queue in services.config.queues


def not_included(services: Services, event: ev.InvokeScheduled, what: str, attempt: int = 1) -> Completed:
    """Fail a step that nobody could execute."""
    message = (
        f"app {services.app.name!r} has no {what} {event.function_name!r}: "
        "include the app that defines it, with app.include(...)"
    )
    error = ev.Error(type="NotFound", message=message, retryable=False, attempts=attempt)
    return Completed(path=event.promise_id, attempt=attempt, result=ev.Result(error=error), overdue=True)


def _too_large(limits: Limits, events: Iterable[ev.Event]) -> ev.ExecutionFailed | None:
    """End a run whose code asks for what is too large to journal: nothing of that activation is kept."""
    try:
        for event in events:
            measured = _MEASURED.get(type(event))
            if measured is not None and not limits.is_small(data := measured.data(event)):
                limits.check_payload(data, measured.name(event))
    except InvalidRequest as problem:
        return ev.ExecutionFailed(error=ev.Error(type="PayloadTooLarge", message=str(problem)))
    return None


class _Measured(NamedTuple):
    """What of an event may be too large, and what it is called."""

    data: Callable[[Any], ev.Json]
    name: Callable[[Any], str]


_MEASURED: Final[dict[type, _Measured]] = {
    ev.InvokeScheduled: _Measured(attrgetter("input"), lambda event: f"the input of {event.function_name}"),
    ev.ExecutionCompleted: _Measured(attrgetter("result.ok"), lambda _: "the result of the run"),
    ev.ExecutionContinued: _Measured(attrgetter("input"), lambda _: "the input of the next segment"),
    ev.StateSet: _Measured(attrgetter("value"), lambda event: f"state[{event.key!r}]"),
}


def _too_long(
    services: Services, execution: Execution, before: int, events: int
) -> ev.ExecutionFailed | None:
    limits = services.limits
    if events > limits.history_max_events:
        message = (
            f"the journal would have {events:,} events, and the limit is {limits.history_max_events:,}: "
            "end long loops with ctx.continue_as_new(...)"
        )
        return ev.ExecutionFailed(error=ev.Error(type="HistoryTooLong", message=message))
    if before <= limits.history_warning_events < events:
        logger.warning("run %s has %d events: use ctx.continue_as_new(...)", execution.run, events)
    return None
