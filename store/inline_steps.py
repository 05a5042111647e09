"""Which steps a run's row has, and which have rows of their own. Pure.

A task that is executed where its run is, and has nothing special, is scheduled and completed by two writes of
its run. It is one of a few in the run's row: a row of its own would cost an insert, a delete and five
entries in indexes. A step that others may have to find has a row: it is queued, has deadlines, is to be tried
again, or was given up on. So have all beyond the first few. One that has a row keeps it until it is closed.
"""

from __future__ import annotations

from typing import Final

from tidewheel.store.records import InlineStep, RunRecord, StepRecord

#: So many steps are in a run's row at most: it is written anew each time.
INLINE_MAX: Final = 8


def is_plain(step: StepRecord) -> bool:
    """Tell whether only the owner of its run has to know of *step*."""
    return (
        step.dispatch == "inline"
        and step.owner is not None
        and step.kind != "workflow"
        and (step.state == "started" or (step.state == "scheduled" and step.attempt == 0))
        and step.close_by is None
        and step.start_by is None
        and step.heartbeat_s is None
        and step.beat is None
        and step.signal_id is None
        and not step.abandoned
        and not step.failed
    )


def inlined(step: StepRecord) -> InlineStep:
    """Return *step*, which is plain, as its run's row has it."""
    step_id = step.step_id
    return InlineStep(
        path=step.path,
        function_name=step.function_name,
        scheduled_seq=step.scheduled_seq,
        scheduled_at=step.scheduled_at,
        kind=step.kind,
        attempt=step.attempt,
        step_id=None if step_id == step.path else step_id,
        key_part=None if step.key_part == step_id else step.key_part,
        logical_attempt=step.logical_attempt,
        told=step.told,
    )


def inline_steps(run: RunRecord) -> list[StepRecord]:
    """Return the steps that the row of *run* has, in the order in which they were scheduled."""
    steps = []
    for inline in run.inline:
        step_id = inline.step_id or inline.path
        step = StepRecord(
            path=inline.path,
            kind=inline.kind,
            function_name=inline.function_name,
            queue=run.queue,
            dispatch="inline",
            state="started" if inline.attempt else "scheduled",
            attempt=inline.attempt,
            scheduled_seq=inline.scheduled_seq,
            scheduled_at=inline.scheduled_at,
            owner=run.owner,
            step_id=step_id,
            key_part=inline.key_part or step_id,
            logical_attempt=inline.logical_attempt,
            told=inline.told,
        )
        steps.append(step)
    return steps
