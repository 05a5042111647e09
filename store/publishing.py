"""The public events of what is being written, by the journal's own fold.

The fold needs the open step that an entry is about, and whether a step id was used before. Both
come from rows, so that a run's thousandth step costs what its first did. A test compares what is
written here with the fold over the whole journal.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.journal.ids import is_path
from tidewheel.journal.persistent import PersistentMap
from tidewheel.journal.public import PublicEvent, PublicFold, publish
from tidewheel.journal.public.fold import Step
from tidewheel.store.records import RunRecord, StepRecord
from tidewheel.store.rows import Rows

_STEP_EVENTS = (
    ev.InvokeStarted,
    ev.InvokeRetrying,
    ev.InvokeCompleted,
    ev.StepSkipped,
    ev.StepRetryRequested,
)
_encode = msgspec.json.Encoder().encode


class Publisher:
    """Goes along with the entries of one run, and says what each of them publishes."""

    def __init__(self, rows: Rows, run: RunRecord) -> None:
        self._rows = rows
        self._run = run
        #: What follows has gone through the fold, and may not be among the rows yet.
        self._rows_end = run.last_seq
        self._fold = PublicFold(
            run_id=run.run_id,
            namespace=run.namespace,
            workflow=run.workflow,
            plan_version=run.version,
            seq=run.last_seq,
            prev_seq=run.prev_seq,
            started_id=run.started_id,
            open=PersistentMap(),
            used=PersistentMap(),
        )

    def publish(self, entry: ev.Entry, step: StepRecord | None) -> PublicEvent | None:
        """Return what *entry* publishes; *step* is the open step it is about, and is kept up to date."""
        event = entry.event
        if isinstance(event, ev.InvokeScheduled):
            self._fill_used(event)
        elif step is not None and isinstance(event, _STEP_EVENTS) and step.path not in self._fold.open:
            self._fold = msgspec.structs.replace(
                self._fold, open=self._fold.open.with_entry(step.path, _fold_step(step))
            )
        self._fold, public = publish(self._fold, entry)
        self._run.prev_seq = self._fold.prev_seq
        self._run.started_id = self._fold.started_id
        if step is not None:
            self._take_over(step)
        if isinstance(event, ev.InvokeScheduled):
            self._remember_id(event)
        return public

    def _fill_used(self, event: ev.InvokeScheduled) -> None:
        """Tell the fold whether the step's id was used before in this run, in whichever segment."""
        attempt = self._used_before(event)
        if attempt:
            step_id = event.promise_id if event.key is UNSET else event.key
            used = self._fold.used.with_entry(step_id, attempt)
            self._fold = msgspec.structs.replace(self._fold, used=used)

    def _used_before(self, event: ev.InvokeScheduled) -> int:
        run, rows = self._run, self._rows
        if event.key is UNSET:
            return rows.step_id_attempt(run.key, event.promise_id) if run.has_numeric_keys else 0
        attempt = rows.step_id_attempt(run.key, event.key)
        if not attempt and run.has_unkeyed_steps and is_path(event.key) and not run.path:
            # A key that reads like a path, in a run that has steps known by theirs: rare, so it may cost.
            attempt = _unkeyed_attempt(rows.entries(run.key, 0, self._rows_end), event.key)
        return attempt

    def _remember_id(self, event: ev.InvokeScheduled) -> None:
        if event.key is UNSET:
            self._run.has_unkeyed_steps = True
            return
        self._rows.put_step_id(self._run.key, event.key, event.logical_attempt)
        self._run.has_numeric_keys = self._run.has_numeric_keys or is_path(event.key)

    def _take_over(self, step: StepRecord) -> None:
        known = self._fold.open.get(step.path)
        if known is not None:
            step.key_part = known.key_part
            step.started_id = known.started_id
            step.failed = known.failed
            step.logical_attempt = known.attempt
            step.signal_id = known.signal_id


def key_of(public: PublicEvent) -> bytes:
    """Return the idempotency key as a store keeps it."""
    return bytes.fromhex(public.idempotency_key)


def header_of(public: PublicEvent) -> bytes:
    """Return all of *public* but its data, which the journal entry beside it has."""
    return _encode(msgspec.structs.replace(public, data=None))


def _fold_step(step: StepRecord) -> Step:
    return Step(
        id=step.step_id,
        name=step.function_name,
        key_part=step.key_part,
        attempt=step.logical_attempt,
        started_id=step.started_id,
        failed=step.failed,
        signal_id=step.signal_id,
    )


def _unkeyed_attempt(entries: list[ev.Entry], path: str) -> int:
    """Return the logical attempt at which the step at *path* was scheduled without a key; 0 if it was not."""
    attempts = [
        entry.event.logical_attempt
        for entry in entries
        if isinstance(entry.event, ev.InvokeScheduled)
        and entry.event.promise_id == path
        and entry.event.key is UNSET
    ]
    return max(attempts, default=0)
