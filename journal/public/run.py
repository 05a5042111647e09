"""The public events of the run itself.

What is published as it comes is a table; the rest are functions, whose
docstrings the documentation shows. In keys these events have the step ``RUN``
and the logical attempt 1; those that repeat add ``#<signal id>`` to the step, or
``#<run_seq>`` where there is no signal id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from tidewheel.journal import events as ev
from tidewheel.journal.public.event import PUBLIC_TYPES, RUN
from tidewheel.journal.public.fold import Outcome, PublicFold, error_data, known, outcome_data, run_event


class RunEvent(NamedTuple):
    """How an entry is published; ``repeats``: once per signal, not once per run."""

    type: str
    data: Callable[[Any], dict[str, ev.Json]] = lambda _: {}
    repeats: bool = False


def _signal_data(event: ev.SignalAccepted | ev.SignalRejected) -> dict[str, ev.Json]:
    return {"signalName": event.signal_name, "principal": known(event.principal)}


RUN_EVENTS: Final[dict[type[ev.Event], RunEvent]] = {
    ev.ExecutionCompleted: RunEvent("RunCompleted", lambda event: outcome_data(event.result)),
    ev.ExecutionFailed: RunEvent("RunFailed", lambda event: error_data(event.error)),
    ev.ExecutionCancelled: RunEvent("RunCancelled", lambda event: {"reason": event.reason}),
    ev.RunApproved: RunEvent("RunApproved"),
    ev.RunPaused: RunEvent("RunPaused", repeats=True),
    ev.RunResumed: RunEvent("RunResumed", repeats=True),
    ev.SignalAccepted: RunEvent("SignalAccepted", _signal_data, repeats=True),
    ev.SignalRejected: RunEvent(
        "SignalRejected", lambda event: _signal_data(event) | {"reason": event.reason}, repeats=True
    ),
}


def as_the_table_says(fold: PublicFold, entry: ev.Entry, event: Any) -> Outcome:
    """Publish an entry of ``RUN_EVENTS``, unless its key is used."""
    rule = RUN_EVENTS[type(event)]
    signal_id = known(getattr(event, "signal_id", UNSET))
    key_part = f"{RUN}#{entry.run_seq if signal_id is None else signal_id}" if rule.repeats else RUN
    mark = f"{key_part}|{rule.type}"  # step ids have no bar: one map holds both
    if mark in fold.used:
        return fold, None
    fold = replace(fold, used=fold.used.with_entry(mark, 1))
    return fold, run_event(fold, entry, rule.type, key_part, rule.data(event), signal_id)


def execution_started(fold: PublicFold, entry: ev.Entry, event: ev.ExecutionStarted) -> Outcome:
    """`RunStarted` if `admission` is `now` and this is the run's first segment."""
    fold = replace(fold, workflow=event.workflow, plan_version=event.version, input=event.input)
    return run_admitted(fold, entry, event) if event.admission == "now" else (fold, None)


def execution_awaiting(fold: PublicFold, _entry: ev.Entry, event: ev.ExecutionAwaiting) -> Outcome:
    """Nothing; where it says `version`, that is the `planVersion` of what follows."""
    return fold if event.version is UNSET else replace(fold, plan_version=event.version), None


def run_admitted(fold: PublicFold, entry: ev.Entry, _: object) -> Outcome:
    """`RunStarted`, unless the run has started."""
    if fold.started_id is not None:
        return replace(fold, input=None), None
    started = run_event(fold, entry, "RunStarted", RUN, {"input": fold.input})
    return replace(fold, input=None, started_id=started.id), started


def recorded(fold: PublicFold, entry: ev.Entry, event: ev.Recorded) -> Outcome:
    """An event of its own `name` and `data`; nothing if the name is one of the contract's."""
    if event.name in PUBLIC_TYPES:  # else a decider could make readers believe its run has ended
        return fold, None
    return fold, run_event(fold, entry, event.name, f"{RUN}#{entry.run_seq}", event.data)
