"""The public events of steps; the functions' docstrings are shown by the documentation.

A step is known from its ``InvokeScheduled``: its id is the key given in the code,
else its path. A platform retry belongs to the logical attempt it retries, and
an attempt publishes each event once. An id used before at that attempt (its key
was taken again after continue-as-new) adds ``#<path>`` to the step of its keys.

Nothing is invented: a step that completes with no start in the journal has no
``StepStarted``, and entries of a step already settled publish nothing.
"""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from tidewheel.journal import events as ev
from tidewheel.journal.public.fold import (
    Outcome,
    PublicFold,
    Step,
    error_data,
    known,
    outcome_data,
    step_event,
)


def scheduled(fold: PublicFold, _: ev.Entry, event: ev.InvokeScheduled) -> Outcome:
    """Nothing: the step gets its id, name and logical attempt."""
    if event.promise_id in fold.open:
        return fold, None
    step_id = known(event.key) or event.promise_id
    step = Step(step_id, event.function_name, step_id, event.logical_attempt)
    return _opened(fold, event.promise_id, step), None


def retry_requested(fold: PublicFold, _: ev.Entry, event: ev.StepRetryRequested) -> Outcome:
    """Nothing: the step's logical attempt rises."""
    step = fold.open.get(event.promise_id)
    if step is None:
        return fold, None
    attempt = step.attempt + 1 if event.logical_attempt is UNSET else event.logical_attempt
    if attempt <= step.attempt:
        return fold, None
    again = Step(step.id, step.name, step.id, attempt, signal_id=known(event.signal_id))
    return _opened(fold, event.promise_id, again), None


def started(fold: PublicFold, entry: ev.Entry, event: ev.InvokeStarted) -> Outcome:
    """`StepStarted`, once per logical attempt."""
    step = fold.open.get(event.promise_id)
    if step is None or step.started_id is not None:
        return fold, None
    public = step_event(fold, entry, step, "StepStarted", {}, event.attempt)
    open_ = fold.open.with_entry(event.promise_id, replace(step, started_id=public.id))
    return replace(fold, open=open_), public


def retrying(fold: PublicFold, entry: ev.Entry, event: ev.InvokeRetrying) -> Outcome:
    """`StepFailed` where the step is parked (`retry_at` is null), once per logical attempt; else nothing."""
    step = fold.open.get(event.promise_id)
    if step is None or step.failed or event.retry_at is not None:
        return fold, None
    public = step_event(fold, entry, step, "StepFailed", error_data(event.error), event.failed_attempt)
    open_ = fold.open.with_entry(event.promise_id, replace(step, failed=True))
    return replace(fold, open=open_), public


def completed(fold: PublicFold, entry: ev.Entry, event: ev.InvokeCompleted) -> Outcome:
    """`StepCompleted`, or `StepFailed` if the result is an error not yet told."""
    step = fold.open.get(event.promise_id)
    if step is None:
        return fold, None
    settled = replace(fold, open=fold.open.without(event.promise_id))
    data = outcome_data(event.result)
    if "result" in data:
        return settled, step_event(fold, entry, step, "StepCompleted", data, event.attempt)
    return settled, None if step.failed else step_event(fold, entry, step, "StepFailed", data, event.attempt)


def skipped(fold: PublicFold, entry: ev.Entry, event: ev.StepSkipped) -> Outcome:
    """`StepSkipped`."""
    step = fold.open.get(event.promise_id)
    if step is None:
        return fold, None
    settled = replace(fold, open=fold.open.without(event.promise_id))
    # The operator's doing, not the attempt's: it hangs under the run and names its own signal.
    step = replace(step, started_id=None, signal_id=known(event.signal_id))
    return settled, step_event(fold, entry, step, "StepSkipped", {"reason": event.reason})


def _opened(fold: PublicFold, path: str, step: Step) -> PublicFold:
    """Return *fold* with *step* open under a key part not yet used at its attempt."""
    for key_part in (step.id, f"{step.id}#{path}"):
        if step.attempt > (fold.used.get(key_part) or 0):
            used = fold.used.with_entry(key_part, step.attempt)
            open_ = fold.open.with_entry(path, replace(step, key_part=key_part))
            return replace(fold, open=open_, used=used)
    return fold  # a path scheduled twice, which no journal that keeps the rules has
