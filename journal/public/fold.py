"""What the public fold remembers of a run, and how it fills in an event.

The fold keeps the open steps and the used keys in persistent maps: going on
from the newest fold is O(1) an entry, and going on from an older one, as after a
commit that was refused, gives the same answers for one copy. A settled step is
forgotten but for its id. Which entry publishes what is in ``run`` and ``steps``.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from tidewheel.journal.events import Entry, Error, Json, Result
from tidewheel.journal.persistent import PersistentMap
from tidewheel.journal.public.event import PublicEvent, idempotency_key


class Step(msgspec.Struct, frozen=True):
    """An open step: how it is shown, and what its logical attempt has published.

    ``key_part`` is its id as keys have it; ``signal_id`` is what asked for this attempt.
    """

    id: str
    name: str
    key_part: str
    attempt: int
    started_id: str | None = None
    failed: bool = False
    signal_id: str | None = None


class PublicFold(msgspec.Struct, frozen=True, kw_only=True):
    """What must be remembered of the entries so far. An immutable value.

    ``input`` is kept until ``RunStarted`` tells it; ``used`` holds the highest logical
    attempt of every step id, and a mark for every run event.
    """

    run_id: str
    namespace: str
    workflow: str = ""
    plan_version: str = ""
    input: Json = None
    seq: int = -1
    prev_seq: int | None = None
    started_id: str | None = None
    open: PersistentMap[Step]
    used: PersistentMap[int]

    @classmethod
    def start(cls, run_id: str, namespace: str = "default") -> PublicFold:
        """Return the fold of a run whose journal is empty."""
        return cls(run_id=run_id, namespace=namespace, open=PersistentMap(), used=PersistentMap())


Outcome: TypeAlias = tuple[PublicFold, PublicEvent | None]


def run_event(
    fold: PublicFold, entry: Entry, event_type: str, key_part: str, data: Json, signal_id: str | None = None
) -> PublicEvent:
    """Return an event about the run itself."""
    return PublicEvent(
        run_id=fold.run_id,
        run_seq=entry.run_seq,
        prev_seq=fold.prev_seq,
        event_type=event_type,
        workflow=fold.workflow,
        plan_version=fold.plan_version,
        emitted_at=entry.at,
        persisted_at=entry.at,
        caused_by_signal_id=signal_id,
        parent_event_id=fold.started_id,
        data=data,
        idempotency_key=idempotency_key(fold.run_id, key_part, 1, event_type, fold.plan_version),
    )


def step_event(
    fold: PublicFold, entry: Entry, step: Step, event_type: str, data: Json, engine_attempt: int | None = None
) -> PublicEvent:
    """Return an event about *step*."""
    key = idempotency_key(fold.run_id, step.key_part, step.attempt, event_type, fold.plan_version)
    return PublicEvent(
        run_id=fold.run_id,
        run_seq=entry.run_seq,
        prev_seq=fold.prev_seq,
        event_type=event_type,
        workflow=fold.workflow,
        step_id=step.id,
        step_name=step.name,
        logical_attempt_id=str(step.attempt),
        engine_attempt_id=None if engine_attempt is None else str(engine_attempt),
        plan_version=fold.plan_version,
        emitted_at=entry.at,
        persisted_at=entry.at,
        caused_by_signal_id=step.signal_id,
        parent_event_id=step.started_id or fold.started_id,
        data=data,
        idempotency_key=key,
    )


def outcome_data(result: Result) -> dict[str, Json]:
    """Return *result* as ``data`` shows it."""
    return {"result": result.ok} if result.error is UNSET else error_data(result.error)


def error_data(error: Error) -> dict[str, Json]:
    """Return *error* as ``data`` shows it."""
    return {"error": msgspec.to_builtins(error)}


def known(text: str | UnsetType) -> str | None:
    """Return *text*, or None where the journal left it out."""
    return None if text is UNSET else text
