"""Which journal entry publishes what, and the fold over them.

Rule 1: an entry publishes at most one event, under the entry's ``run_seq``.
Rule 2: a run uses an event's key once; an entry that would use it again
publishes nothing. So a platform retry does not publish ``StepStarted`` again.
Rule 3: ``prev_seq`` is the ``run_seq`` of the run's previous public event: a
reader that holds it has missed nothing, however much it filters.

An event class that is not in the table publishes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from tidewheel.journal import events as ev
from tidewheel.journal.public import run, steps
from tidewheel.journal.public.event import PublicEvent
from tidewheel.journal.public.fold import Outcome, PublicFold

Handler: TypeAlias = Callable[[PublicFold, ev.Entry, Any], Outcome]

HANDLERS: Final[dict[type[ev.Event], Handler]] = {
    ev.ExecutionStarted: run.execution_started,
    ev.ExecutionAwaiting: run.execution_awaiting,
    ev.RunAdmitted: run.run_admitted,
    **dict.fromkeys(run.RUN_EVENTS, run.as_the_table_says),
    ev.InvokeScheduled: steps.scheduled,
    ev.InvokeStarted: steps.started,
    ev.InvokeRetrying: steps.retrying,
    ev.InvokeCompleted: steps.completed,
    ev.StepSkipped: steps.skipped,
    ev.StepRetryRequested: steps.retry_requested,
    ev.Recorded: run.recorded,
}


def publish(fold: PublicFold, entry: ev.Entry) -> Outcome:
    """Return the fold after *entry*, and the event it publishes, if any.

    Entries come in the order of ``run_seq``; one that was already folded changes nothing.
    """
    handler = HANDLERS.get(type(entry.event))
    if handler is None or entry.run_seq <= fold.seq:
        return fold, None
    fold, event = handler(fold, entry, entry.event)
    prev_seq = fold.prev_seq if event is None else entry.run_seq
    return replace(fold, seq=entry.run_seq, prev_seq=prev_seq), event


def published(entries: Iterable[ev.Entry], run_id: str, namespace: str = "default") -> list[PublicEvent]:
    """Return all that a journal publishes."""
    fold, found = PublicFold.start(run_id, namespace), []
    for entry in entries:
        fold, event = publish(fold, entry)
        if event is not None:
            found.append(event)
    return found
