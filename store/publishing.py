"""The public events of what is being written, as the journal's own fold would have them.

The fold (``journal.public``) says which entry publishes what. For the events of steps, which are nearly all,
the same is said here once more over the step's row, without the fold's maps, so that a run's thousandth step
costs what its first did, and little. All others go through the fold itself. Tests compare what is written
here with the fold over whole journals.

A row has its public event's key and the ``run_seq`` of the one before; what else is not in the row or in the
run's is the *header*.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.journal.ids import is_path
from tidewheel.journal.persistent import PersistentMap
from tidewheel.journal.public import HANDLERS, PublicEvent, PublicFold, event_id, key_text, publish
from tidewheel.store.records import RunRecord, StepRecord
from tidewheel.store.rows import Rows


class PublicHeader(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a public event has beside its run, its place, its key, its times and its data."""

    event_type: str
    step_id: str | None = None
    step_name: str | None = None
    logical_attempt_id: str = "1"
    engine_attempt_id: str | None = None
    plan_version: str = ""
    caused_by_signal_id: str | None = None
    parent_event_id: str | None = None


class Published(NamedTuple):
    """A public event as its row has it."""

    key: bytes
    header: bytes


_encode = msgspec.json.Encoder().encode


def stored(public: PublicEvent) -> Published:
    """Return *public* as its row has it."""
    header = PublicHeader(
        event_type=public.event_type,
        step_id=public.step_id,
        step_name=public.step_name,
        logical_attempt_id=public.logical_attempt_id,
        engine_attempt_id=public.engine_attempt_id,
        plan_version=public.plan_version,
        caused_by_signal_id=public.caused_by_signal_id,
        parent_event_id=public.parent_event_id,
    )
    return Published(bytes.fromhex(public.idempotency_key), _encode(header))


class Publisher:
    """Goes along with the entries of one run, and says what each of them publishes."""

    def __init__(self, rows: Rows, run: RunRecord) -> None:
        self.run = run
        self._rows = rows
        #: What follows was written through this page, and may not be among the rows yet.
        self._rows_end = run.last_seq
        #: The step ids that were used since, with their logical attempts.
        self._used: dict[str, int] = {}
        #: The keys of run events that were published since.
        self._run_keys: PersistentMap[int] = PersistentMap()

    def publish(
        self, event: ev.Event, seq: int, at: dt.datetime, step: StepRecord | None
    ) -> Published | None:
        """Return what the entry publishes; *step* is the open step it is about, and is kept up to date."""
        kind = type(event)
        about_step = _ABOUT_STEPS.get(kind)
        if about_step is not None:
            public = None if step is None else about_step(self, event, step)
        elif kind in _FOLDED:
            public = self._fold(ev.Entry(seq, at, event))
        else:
            return None
        if public is not None:
            self.run.prev_seq = seq
        return public

    def about(
        self, step: StepRecord, event_type: str, engine_attempt: int | None, parent_id: str | None = None
    ) -> Published:
        """Return an event about *step*, which hangs under *parent_id*, else under the run's start."""
        run, attempt = self.run, step.logical_attempt
        text = key_text(run.run_id, step.key_part, attempt, event_type, run.version)
        header = PublicHeader(
            event_type=event_type,
            step_id=step.step_id,
            step_name=step.function_name,
            logical_attempt_id=str(attempt),
            engine_attempt_id=None if engine_attempt is None else str(engine_attempt),
            plan_version=run.version,
            caused_by_signal_id=step.signal_id,
            parent_event_id=parent_id or run.started_id,
        )
        return Published(hashlib.sha256(text.encode()).digest(), _encode(header))

    def _fold(self, entry: ev.Entry) -> Published | None:
        """Let the fold say it."""
        run = self.run
        fold = PublicFold(
            run_id=run.run_id,
            namespace=run.namespace,
            workflow=run.workflow,
            plan_version=run.version,
            seq=entry.run_seq - 1,
            prev_seq=run.prev_seq,
            started_id=run.started_id,
            open=PersistentMap(),
            used=self._run_keys,
        )
        fold, public = publish(fold, entry)
        run.started_id = fold.started_id
        self._run_keys = fold.used
        return None if public is None else stored(public)

    # The ids of steps

    def name_step(self, event: ev.InvokeScheduled, step: StepRecord) -> None:
        """Give *step* a name for its keys that was not used in this run at its attempt, in any segment."""
        step_id, attempt = step.step_id, event.logical_attempt
        if attempt <= max(self._used.get(step_id, 0), self._used_before(event)):
            step.key_part = f"{step_id}#{step.path}"
        self._used[step.key_part] = attempt
        if event.key is UNSET:
            self.run.has_unkeyed_steps = True
        else:
            self._rows.put_step_id(self.run.key, event.key, attempt)
            self.run.has_numeric_keys = self.run.has_numeric_keys or is_path(event.key)

    def _used_before(self, event: ev.InvokeScheduled) -> int:
        run, rows = self.run, self._rows
        if event.key is UNSET:
            return rows.step_id_attempt(run.key, event.promise_id) if run.has_numeric_keys else 0
        attempt = rows.step_id_attempt(run.key, event.key)
        if not attempt and run.has_unkeyed_steps and is_path(event.key) and not run.path:
            # A key that reads like a path, in a run that has steps known by theirs: rare, so it may cost.
            attempt = _unkeyed_attempt(rows.entries(run.key, 0, self._rows_end), event.key)
        return attempt


# What is published of a step: as ``journal.public.steps`` says, over the step's row


def _scheduled(publisher: Publisher, event: ev.InvokeScheduled, step: StepRecord) -> None:
    publisher.name_step(event, step)


def _started(publisher: Publisher, event: ev.InvokeStarted, step: StepRecord) -> Published | None:
    if step.started_id is not None:
        return None
    public = publisher.about(step, "StepStarted", event.attempt)
    step.started_id = event_id(public.key.hex())
    return public


def _retrying(publisher: Publisher, event: ev.InvokeRetrying, step: StepRecord) -> Published | None:
    if step.failed or event.retry_at is not None:
        return None
    step.failed = True
    return publisher.about(step, "StepFailed", event.failed_attempt, step.started_id)


def _completed(publisher: Publisher, event: ev.InvokeCompleted, step: StepRecord) -> Published | None:
    if event.result.error is UNSET:
        return publisher.about(step, "StepCompleted", event.attempt, step.started_id)
    return None if step.failed else publisher.about(step, "StepFailed", event.attempt, step.started_id)


def _skipped(publisher: Publisher, event: ev.StepSkipped, step: StepRecord) -> Published | None:
    step.signal_id = None if event.signal_id is UNSET else event.signal_id
    return publisher.about(step, "StepSkipped", None)


AboutStep: TypeAlias = Callable[[Publisher, Any, StepRecord], Published | None]

_ABOUT_STEPS: Final[dict[type[ev.Event], AboutStep]] = {
    ev.InvokeScheduled: _scheduled,
    ev.InvokeStarted: _started,
    ev.InvokeRetrying: _retrying,
    ev.InvokeCompleted: _completed,
    ev.StepSkipped: _skipped,
}
#: A suspension publishes nothing, and the version that it may say is in the run's row by now.
_FOLDED: Final = HANDLERS.keys() - _ABOUT_STEPS.keys() - {ev.ExecutionAwaiting}


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
