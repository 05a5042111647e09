"""What a worker tells: a span for each turn that was committed and each attempt that was executed; figures.

Rule: replay tells nothing. A turn's span is begun when it is known what its code asks for, goes with the
append, and is told of once that is committed: one that was dropped is not told of, nor one twice that a lost
reply made somebody repeat. An attempt's span is that of its body, which is called once; its id is made of the
promise and the number of the attempt. Nothing here runs unless telemetry is on.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from tidewheel.broker.alerts import Alert
from tidewheel.broker.protocol import Delivery
from tidewheel.broker.topology import destination
from tidewheel.journal import events as ev
from tidewheel.sdk.telling import tell_answer
from tidewheel.store.append import Append, Appended, Fate, Fired, Moves
from tidewheel.store.protocol import Answered
from tidewheel.store.records import RunRef
from tidewheel.telemetry import names, switch
from tidewheel.telemetry.context import TraceContext, made_of, of_headers
from tidewheel.telemetry.runs import Cause, RunTrace, parent_and_links

if TYPE_CHECKING:
    from tidewheel.telemetry.recorder import Recorder
    from tidewheel.workers.attempt import Attempt
    from tidewheel.workers.worker import Worker

T = TypeVar("T")


# Turns


def moment_ns() -> int:
    """Return the time by this machine's clock."""
    return time.time_ns()


def cause_of(delivery: Delivery) -> Cause:
    """Return what *delivery* is to the trace of what it asks for."""
    message = delivery.message
    return Cause(
        trace=of_headers(message.headers),
        queue=delivery.queue,
        message_id=message.message_id,
        is_redelivered=delivery.earlier_deliveries > 0,
    )


def delivered(recorder: Recorder, run: RunRef, delivery: Delivery) -> TraceContext | None:
    """A message asks for a turn of *run*; return the context that it carries."""
    cause = recorder.runs.of(run).cause = cause_of(delivery)
    return cause.trace


def turned(recorder: Recorder, request: Append, began_ns: int, started: ev.ExecutionStarted | None) -> Append:
    """Begin the span of a turn that asks for *request*, and let that carry its context."""
    known, moves = recorder.runs.of(request.run), request.moves
    if started is not None and not known.workflow:
        known.workflow = started.workflow
        known.origin = made_of(started.traceparent, started.tracestate)
    if moves is None or not moves.events:
        return request if known.latest is None else replace(request, trace=known.latest)
    is_delayed = any(isinstance(fact, Fired) for fact in request.facts)
    parent, links = parent_and_links(known, is_delayed=is_delayed)
    attributes = _of_run(request.run) | {names.WORKFLOW: known.workflow, names.EVENTS: len(moves.events)}
    cause = known.cause
    name, about = names.ACTIVATE, known.workflow
    if cause is not None:
        name, about = names.PROCESS, destination(cause.queue)
        attributes |= _of_message(recorder, request.run, cause)
    span = recorder.spans.begin(
        name,
        about,
        parent=parent,
        links=links,
        attributes=attributes,
        identity=f"{request.run.namespace}|{request.run.run_id}|{moves.token.hex()}",
        began_ns=began_ns or None,
    )
    known.take(span, parent)
    return replace(request, trace=span.trace, moves=_continued(moves, span.trace))


def _continued(moves: Moves, trace: TraceContext) -> Moves:
    """Return *moves*, whose next segment, if they begin one, goes on from *trace*."""
    if not any(isinstance(event, ev.ExecutionStarted) for event in moves.events):
        return moves
    events: list[ev.Event] = [
        replace(event, traceparent=trace.traceparent, tracestate=trace.tracestate or UNSET)
        if isinstance(event, ev.ExecutionStarted)
        else event
        for event in moves.events
    ]
    return replace(moves, events=events)


class Group:
    """Knows how many appends one transaction committed: those that were answered with the same moment."""

    __slots__ = ("_now", "_size")

    def __init__(self) -> None:
        self._now: dt.datetime | None = None
        self._size = 0

    def note(self, now: dt.datetime) -> int:
        """One more was committed at *now*; return how many were before, if that was another moment."""
        if now is self._now:
            self._size += 1
            return 0
        before, self._now, self._size = self._size, now, 1
        return before


class Appending:
    """An append that is under way, and who waits for its answer."""

    __slots__ = ("_answered", "_began_s", "_group", "_recorder", "_request")

    def __init__(self, recorder: Recorder, group: Group, request: Append, answered: Answered) -> None:
        self._recorder = recorder
        self._group = group
        self._request = request
        self._answered = answered
        self._began_s = time.perf_counter()

    def __call__(self, answer: Appended | Exception) -> None:
        """Tell what became of it, then whoever waits."""
        recorder, request = self._recorder, self._request
        took_s = time.perf_counter() - self._began_s
        known = recorder.runs.of(request.run)
        if isinstance(answer, Exception):
            recorder.meters.record(names.APPEND_DURATION, {names.ERROR_TYPE: type(answer).__name__}, took_s)
            known.dropped()
        else:
            recorder.meters.record(names.APPEND_DURATION, {}, took_s)
            group = self._group.note(answer.now)
            if group:
                recorder.meters.record(names.APPEND_GROUP, {}, group)
            tell_answer(recorder, request, answer, known.workflow)
            _tell_turn(recorder, known, request, answer)
            if any(ended.run == request.run for ended in answer.ended):
                recorder.runs.forget(request.run)
        self._answered(answer)


def _tell_turn(recorder: Recorder, known: RunTrace, request: Append, answer: Appended) -> None:
    """Tell of the turn that *request* was made in, if it was committed; else it was never there."""
    if request.moves is None:
        return
    if answer.fate is not Fate.COMMITTED:
        known.dropped()
        return
    found = known.committed(request.trace)
    if found is None:
        return
    span, cause = found
    span.end()
    if cause is not None:
        messaging = _messaging(recorder, destination(cause.queue))
        recorder.meters.record(names.PROCESS_DURATION, messaging, span.seconds())


# Attempts


def begin_attempt(recorder: Recorder, attempt: Attempt) -> None:
    """The body of *attempt* is about to be called, in this context: it is in the attempt's span."""
    event, cause, run = attempt.event, attempt.cause, attempt.run
    before = (None if cause is None else cause.trace) or attempt.trace or recorder.runs.latest(run)
    is_delayed = attempt.number > 1 or (cause is not None and cause.is_redelivered)
    attributes = _of_run(run) | {
        names.TASK: event.function_name,
        names.STEP: event.promise_id,
        names.ATTEMPT: attempt.number,
    }
    if cause is not None:
        attributes |= _of_message(recorder, run, cause)
    span = attempt.span = recorder.spans.begin(
        names.STEP_HERE if cause is None else names.STEP_QUEUED,
        event.function_name,
        parent=None if is_delayed else before,
        links=() if before is None or not is_delayed else (before,),
        attributes=attributes,
        identity=f"{run.namespace}|{attempt.idempotency_key}|{attempt.number}",
    )
    span.enter()


def end_attempt(attempt: Attempt, outcome: object) -> None:
    """The attempt came to *outcome*; None if it was given up. What was told is not told again."""
    recorder, span, attempt.span = switch.active, attempt.span, None
    if recorder is None or span is None:
        return
    error: str | None = None
    why, what = "", "ok"
    if outcome is None:
        what = "given_up"
    elif isinstance(outcome, Exception):
        what, error, why = "error", type(outcome).__name__, str(outcome)
    elif isinstance(outcome, ev.Result) and outcome.error is not UNSET:
        what, error, why = "error", outcome.error.type, outcome.error.message
    attributes = {names.TASK: attempt.event.function_name, names.OUTCOME: what}
    recorder.meters.record(names.STEP_DURATION, attributes, span.seconds())
    span.say({names.OUTCOME: what})
    span.end(error, why)
    recorder.meters.count(
        names.STEP_ATTEMPTS, attributes if error is None else attributes | {names.ERROR_TYPE: error}
    )


async def executed(attempt: Attempt, execution: Awaitable[T]) -> T:
    """Await the *execution* of an attempt, and tell how it ended."""
    try:
        result = await execution
    except Exception as problem:
        end_attempt(attempt, problem)
        raise
    except BaseException:  # it was cancelled: nobody wants it any more
        end_attempt(attempt, None)
        raise
    end_attempt(attempt, result)
    return result


# Figures


def alerted(recorder: Recorder, alert: Alert) -> None:
    """Count an alert that was raised."""
    recorder.meters.count(
        names.ALERTS,
        {names.ALERT: alert.alert, names.SEVERITY: alert.severity, names.NAMESPACE: alert.namespace},
    )


def observe(worker: Worker) -> None:
    """Let the figures of *worker* be read, if telemetry is on."""
    if switch.active is None:
        return
    meters = switch.active.meters
    meters.observe(names.WORKER_STEPS, worker, _steps)
    meters.observe(names.WORKER_RUNS, worker, lambda one: [(one.cached(), {})])
    meters.observe(names.HINTS_DROPPED, worker, lambda one: [(one.services.postman.dropped, {})])


def _steps(worker: Worker) -> list[tuple[float, dict[str, str]]]:
    runner = worker.services.runner
    return [(runner.running, {names.OUTCOME: "running"}), (runner.waiting, {names.OUTCOME: "waiting"})]


def _of_run(run: RunRef) -> dict[str, Any]:
    return {names.NAMESPACE: run.namespace, names.RUN_ID: run.run_id}


def _of_message(recorder: Recorder, run: RunRef, cause: Cause) -> dict[str, Any]:
    return {
        **_messaging(recorder, destination(cause.queue)),
        names.MESSAGE_ID: cause.message_id,
        names.CONVERSATION: run.run_id,
    }


def _messaging(recorder: Recorder, where: str) -> dict[str, str]:
    return {
        names.SYSTEM: recorder.system,
        names.OPERATION: "process",
        names.OPERATION_TYPE: "process",
        names.DESTINATION: where,
    }
