"""What a client tells of what it asks for: a span for each request, in the trace of whoever calls it.

The context of the span goes into the journal with a start, and to workers with a hint or a command: what
they do on its account is in the same trace. Nothing here runs unless telemetry is on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from tidewheel.broker.commands import Command, StartCommand
from tidewheel.broker.topology import COMMANDS
from tidewheel.journal import events as ev
from tidewheel.sdk.settings import variables_of_others
from tidewheel.store.append import Append, Appended, Cancelled, Fate, Resolved, Signalled
from tidewheel.store.records import RunRef
from tidewheel.telemetry import names, switch
from tidewheel.telemetry.context import TraceContext

if TYPE_CHECKING:
    from tidewheel.telemetry.recorder import Recorder

_STATUS: Final[dict[type[ev.Event], str]] = {
    ev.ExecutionCompleted: "completed",
    ev.ExecutionFailed: "failed",
    ev.ExecutionCancelled: "cancelled",
}


def turn_on(service: str, *, is_own_process: bool = False) -> bool:
    """Turn telemetry on if the environment or the program around us asks for it; tell whether it is on."""
    return switch.turn_on_as_told(
        variables_of_others("OTEL_"), service=service, is_own_process=is_own_process
    )


async def asked(
    recorder: Recorder, request: Append, append: Callable[[Append], Awaitable[Appended]]
) -> Appended:
    """Do what *request* asks for, by *append*, and tell of it."""
    name, about, attributes = _named(request)
    if name is None:
        return await append(request)
    attributes |= _run(request.run)
    span = recorder.spans.begin(name, about, parent=recorder.current(), attributes=attributes)
    token = span.enter()
    try:
        answer = await append(replace(request, trace=span.trace))
    except BaseException as problem:
        span.end(type(problem).__name__, str(problem))
        raise
    finally:
        span.leave(token)
    span.end()
    tell_answer(recorder, request, answer)
    return answer


async def commanded(
    recorder: Recorder, command: Command, send: Callable[[Command, TraceContext | None], Awaitable[None]]
) -> None:
    """Give *command*, by *send*, and tell of it."""
    run_id = command.run_id or ""
    attributes: dict[str, Any] = {
        names.SYSTEM: recorder.system,
        names.OPERATION: "send",
        names.OPERATION_TYPE: "send",
        names.DESTINATION: COMMANDS,
        names.CONVERSATION: run_id,
        names.NAMESPACE: command.namespace,
        names.RUN_ID: run_id,
    }
    if isinstance(command, StartCommand):
        attributes |= {names.ROUTING_KEY: "start", names.WORKFLOW: command.workflow}
    span = recorder.spans.begin(names.COMMAND, parent=recorder.current(), attributes=attributes)
    try:
        await send(command, span.trace)
    except BaseException as problem:
        span.end(type(problem).__name__, str(problem))
        raise
    span.end()


def tell_answer(recorder: Recorder, request: Append, answer: Appended, workflow: str = "") -> None:
    """Count the runs that an append has started and ended; *workflow* is its run's, if that is known."""
    namespace, start, moves = request.run.namespace, request.start, request.moves
    started = [] if start is None or answer.existed else [start.workflow]
    if moves is not None and moves.children and answer.fate is Fate.COMMITTED:
        started += [child.workflow for child in moves.children.values()]
    for one in started:
        recorder.meters.count(names.RUNS_STARTED, {names.WORKFLOW: one, names.NAMESPACE: namespace})
    for ended in answer.ended:
        if ended.event is None:
            continue  # it had ended before
        attributes = {names.STATUS: _STATUS[type(ended.event)], names.NAMESPACE: namespace}
        if ended.run == request.run and (workflow or start is not None):
            attributes[names.WORKFLOW] = workflow or (start.workflow if start is not None else "")
        recorder.meters.count(names.RUNS_ENDED, attributes)


def _named(request: Append) -> tuple[names.SpanName | None, str, dict[str, Any]]:
    if request.start is not None:
        return names.START, request.start.workflow, {names.WORKFLOW: request.start.workflow}
    for fact in request.facts:
        if isinstance(fact, Signalled):
            return names.SIGNAL_RUN, "", {names.SIGNAL: fact.name}
        if isinstance(fact, Cancelled):
            return names.CANCEL, "", {}
        if isinstance(fact, Resolved):
            return names.RESOLVE, "", {}
    return None, "", {}


def _run(run: RunRef) -> dict[str, str]:
    return {names.NAMESPACE: run.namespace, names.RUN_ID: run.run_id}
