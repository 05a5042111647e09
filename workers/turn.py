"""One turn of a run, as far as it has come, and what is decided in it without a session."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from tidewheel.journal import events as ev
from tidewheel.replay.execution import Activation, Execution
from tidewheel.replay.history import History
from tidewheel.sdk.app import App
from tidewheel.store.append import Append, Completed, Fact, Fired, Moves, Park
from tidewheel.store.records import RunRef
from tidewheel.telemetry import switch
from tidewheel.workers import fitting, telling
from tidewheel.workers.dispatching import Orders
from tidewheel.workers.opening import Opening

#: The facts that may be known already, when somebody else was faster, and their events.
_SETTLING: Final = (Completed, Fired)
_SETTLED: Final = (ev.InvokeCompleted, ev.TimerFired)


class Turn(msgspec.Struct, eq=False):
    """One activation, as far as it has come."""

    #: What happened here, and what of it is written, together with what is said of others' losses.
    happened: list[Fact]
    facts: tuple[Fact, ...]
    #: When it was begun, by the store's clock.
    now: dt.datetime
    activation: Activation | None = None
    orders: Orders | None = None
    moves: Moves | None = None
    park: Park | None = None
    #: The event that the run began with, and when the turn did, by this machine's clock, for whoever is told.
    started: ev.ExecutionStarted | None = None
    began_ns: int = 0


def settled_in(entries: Iterable[ev.Entry]) -> list[str]:
    """Return the paths of what *entries* say to have ended."""
    return [entry.event.promise_id for entry in entries if isinstance(entry.event, _SETTLED)]


def unknown(facts: Iterable[Fact], known: Collection[str]) -> tuple[Fact, ...]:
    """Return *facts* without the ends of what is *known* to have ended."""
    return tuple([fact for fact in facts if not (isinstance(fact, _SETTLING) and fact.path in known)])


def settle(history: History, facts: Iterable[Fact], seq: int) -> None:
    """Let *facts* be in *history*, after event *seq*, as if they were committed."""
    for fact in facts:
        seq += 1
        if isinstance(fact, Completed):
            history.settle(fact.path, fact.result, ev.InvokeCompleted, seq)
        elif isinstance(fact, Fired):
            history.settle(fact.path, ev.NOTHING, ev.TimerFired, seq)


def pinned(app: App, execution: Execution, events: list[ev.Event], *, is_first: bool) -> list[ev.Event]:
    """Say by which code the run goes on, where its start does not."""
    started = execution.history.started
    if not events or started is None or started.component_digest:
        return events
    return fitting.pinned(events, app.workflows[started.workflow], is_first=is_first)


def parks(app: App, execution: Execution, activation: Activation | None) -> Park | None:
    """A run whose code no longer fits may wait for a fixed deploy instead of failing."""
    if activation is None or activation.violation is None:
        return None
    assert execution.history.started is not None
    definition = app.workflows[execution.history.started.workflow]
    if definition.on_violation != "park":
        return None
    return Park(kind="violation", reason=activation.violation.message)


def request_of(turn: Turn, run: RunRef, opening: Opening | None, *, is_owed: bool) -> Append | None:
    """Return what has to be appended; None if there is nothing to say, and no turn is owed either.

    With an *opening* that is the start too, or alone where the first turn is not to be kept.
    """
    moves = turn.moves
    assert moves is not None
    if opening is not None:
        request = opening.request(run, turn.now, moves if moves.events and turn.park is None else None)
        return _told(request, turn)
    says_something = turn.facts or moves.events or moves.abandoned or moves.wanted or turn.park
    if not says_something and not is_owed:
        return None
    return _told(Append(run=run, facts=turn.facts, moves=moves, mark=turn.park), turn)


def _told(request: Append, turn: Turn) -> Append:
    """Return *request*, in the trace of the run if telemetry is on."""
    if switch.active is None:
        return request
    return telling.turned(switch.active, request, turn.began_ns, turn.started)
