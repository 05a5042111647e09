"""What a run's events publish, as far as whoever writes them has to know it, and all of it for whoever reads.

The journal's fold (``journal.public``) says which entry publishes what. Whoever writes only goes along: which
of the events publish anything, and the ``run_seq`` of the latest that did. With the events it stores the
*context*, which is what the fold has to know of the run before them. Whoever reads a passage runs the fold
from there, and gets the very events that the fold over the whole journal gives; tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.journal.ids import is_path
from tidewheel.journal.persistent import PersistentMap
from tidewheel.journal.public import (
    HANDLERS,
    RUN,
    PublicEvent,
    PublicFold,
    Step,
    event_id,
    idempotency_key,
    publish,
)
from tidewheel.store.records import RunRecord, RunRef, StepRecord
from tidewheel.store.rows import Rows
from tidewheel.telemetry.context import TraceContext


class ContextStep(msgspec.Struct, array_like=True, frozen=True):
    """An open step that was scheduled before the passage, as it was then."""

    path: str
    id: str
    name: str
    key_part: str
    attempt: int
    told: bool
    failed: bool
    signal_id: str | None


class Context(msgspec.Struct, array_like=True, frozen=True):
    """A run before a passage: its latest public event, its version, the id of ``RunStarted``.

    ``steps`` are those of its open steps that the passage speaks of, ``used`` the ids among those of the
    steps that it schedules which were used before, with their logical attempts. ``trace`` is where in a trace
    the passage was written, if that is known.
    """

    prev_seq: int | None
    version: str
    started_id: str | None
    steps: list[ContextStep]
    used: list[tuple[str, int]]
    trace: TraceContext | None = None


_encode = msgspec.json.Encoder().encode
#: Reads what was stored with a passage.
read_context: Final[Callable[[bytes], Context]] = msgspec.json.Decoder(Context).decode


def public_events(
    run: RunRef, workflow: str, context: bytes, entries: Iterable[ev.Entry], given: ev.Json = None
) -> list[PublicEvent]:
    """Return what the *entries* of a passage publish; *given* is the run's input, if it is admitted here."""
    return events_after(run, workflow, read_context(context), entries, given)


def events_after(
    run: RunRef, workflow: str, before: Context, entries: Iterable[ev.Entry], given: ev.Json = None
) -> list[PublicEvent]:
    """Return the same for a context that was read."""
    fold = PublicFold(
        run_id=run.run_id,
        namespace=run.namespace,
        workflow=workflow,
        plan_version=before.version,
        input=given,
        prev_seq=before.prev_seq,
        started_id=before.started_id,
        open=PersistentMap({step.path: _opened(run.run_id, step, before.version) for step in before.steps}),
        used=PersistentMap(dict(before.used)),
    )
    found = []
    for entry in entries:
        fold, public = publish(fold, entry)
        if public is not None:
            found.append(public)
    return found


def _opened(run_id: str, step: ContextStep, version: str) -> Step:
    """Return *step* as the fold knows it."""
    started_id = None
    if step.told:
        started_id = event_id(idempotency_key(run_id, step.key_part, step.attempt, "StepStarted", version))
    return Step(
        id=step.id,
        name=step.name,
        key_part=step.key_part,
        attempt=step.attempt,
        started_id=started_id,
        failed=step.failed,
        signal_id=step.signal_id,
    )


class Publisher:
    """Goes along with the events of one run as they are written."""

    __slots__ = ("_before", "_rows", "_rows_end", "_run_keys", "_scheduled", "_steps", "_used", "run")

    def __init__(self, rows: Rows, run: RunRecord) -> None:
        self.run = run
        self._rows = rows
        #: The open steps that were touched since ``begin``, as they were before.
        self._steps: list[tuple[Any, ...]] = []
        #: The ids of the steps that were scheduled since, with their logical attempts, and those used before.
        self._scheduled: dict[str, int] = {}
        self._used: list[tuple[str, int]] = []
        #: The keys of run events that were published since.
        self._run_keys: PersistentMap[int] | None = None
        self.begin()

    def begin(self) -> None:
        """The next events are of another passage: the run is as its rows have it."""
        run = self.run
        self._before = (run.prev_seq, run.version, run.started_id)
        self._rows_end = run.last_seq
        self._steps.clear()
        self._scheduled.clear()
        self._used.clear()
        self._run_keys = None

    def context(self, trace: TraceContext | None = None) -> bytes | None:
        """Return what is stored with the events since ``begin``; None if they publish nothing."""
        prev_seq, version, started_id = self._before
        if self.run.prev_seq == prev_seq:
            return None
        if trace is not None:
            return _encode((prev_seq, version, started_id, self._steps, self._used, trace))
        return _encode((prev_seq, version, started_id, self._steps, self._used))

    def publishes(self, seq: int) -> None:
        """Event *seq* publishes something."""
        self.run.prev_seq = seq

    # Events of the run

    def run_event(self, entry: ev.Entry) -> None:
        """Let the fold say whether *entry* publishes something; not for events of steps."""
        run, event = self.run, entry.event
        if isinstance(event, ev.ExecutionStarted) and event.admission == "now":
            if run.started_id is None:  # not a later segment
                run.started_id = event_id(idempotency_key(run.run_id, RUN, 1, "RunStarted", run.version))
                self.publishes(entry.run_seq)
            return
        fold = PublicFold(
            run_id=run.run_id,
            namespace=run.namespace,
            workflow=run.workflow,
            plan_version=run.version,
            seq=entry.run_seq - 1,
            prev_seq=run.prev_seq,
            started_id=run.started_id,
            open=PersistentMap(),
            used=self._run_keys or PersistentMap(),
        )
        fold, public = publish(fold, entry)
        run.started_id = fold.started_id
        self._run_keys = fold.used
        if public is not None:
            self.publishes(entry.run_seq)

    # Events of steps, as ``journal.public.steps`` has them

    def scheduled(self, event: ev.InvokeScheduled, step: StepRecord) -> None:
        """Give *step* a name for its keys that was not used in this run at its attempt, in any segment."""
        step_id, attempt, run = step.step_id, event.logical_attempt, self.run
        if event.key is UNSET and not run.has_numeric_keys and step_id not in self._scheduled:
            self._scheduled[step_id] = attempt  # nearly always, and there is nothing to look up
            run.has_unkeyed_steps = True
            return
        used = max(self._scheduled.get(step_id, 0), self._used_before(event))
        if attempt <= used:
            step.key_part = f"{step_id}#{step.path}"
            if step_id not in self._scheduled:
                self._used.append((step_id, used))
        self._scheduled[step.key_part] = attempt
        if event.key is UNSET:
            run.has_unkeyed_steps = True
        else:
            self._rows.put_step_id(run.key, event.key, attempt)
            run.has_numeric_keys = run.has_numeric_keys or is_path(event.key)

    def touches(self, step: StepRecord) -> None:
        """Something may be written about *step*, which was there before: remember how it was."""
        self._steps.append(
            (
                step.path,
                step.step_id,
                step.function_name,
                step.key_part,
                step.logical_attempt,
                step.told,
                step.failed,
                step.signal_id,
            )
        )

    def started(self, step: StepRecord, seq: int) -> None:
        """*step* was started: news, unless its logical attempt was before."""
        if not step.told:
            step.told = True
            self.publishes(seq)

    def parked(self, step: StepRecord, seq: int) -> None:
        """*step* waits for an operator: it has failed, as far as others know."""
        if not step.failed:
            step.failed = True
            self.publishes(seq)

    def completed(self, step: StepRecord, seq: int, *, is_error: bool) -> None:
        """*step* has its result; an error that was told before is no news."""
        if not (is_error and step.failed):
            self.publishes(seq)

    def _used_before(self, event: ev.InvokeScheduled) -> int:
        run, rows = self.run, self._rows
        if event.key is UNSET:
            return rows.step_id_attempt(run.key, event.promise_id) if run.has_numeric_keys else 0
        attempt = rows.step_id_attempt(run.key, event.key)
        if not attempt and run.has_unkeyed_steps and is_path(event.key) and not run.path:
            # A key that reads like a path, in a run that has steps known by theirs: rare, so it may cost.
            attempt = _unkeyed_attempt(rows.entries(run.key, 0, self._rows_end), event.key)
        return attempt


_ABOUT_STEPS: Final = (
    ev.InvokeScheduled,
    ev.InvokeStarted,
    ev.InvokeRetrying,
    ev.InvokeCompleted,
    ev.StepSkipped,
    ev.StepRetryRequested,
)
#: The events that ``run_event`` is for. A suspension publishes nothing, and the version that it may say is in
#: the run's row by then.
RUN_EVENTS: Final = HANDLERS.keys() - set(_ABOUT_STEPS) - {ev.ExecutionAwaiting}


def _unkeyed_attempt(entries: Sequence[ev.Entry], path: str) -> int:
    """Return the logical attempt at which the step at *path* was scheduled without a key; 0 if it was not."""
    attempts = [
        entry.event.logical_attempt
        for entry in entries
        if isinstance(entry.event, ev.InvokeScheduled)
        and entry.event.promise_id == path
        and entry.event.key is UNSET
    ]
    return max(attempts, default=0)
