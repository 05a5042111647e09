"""CF, waits: timers, promises, blocking, and what the code was shown when.

A *completion* is any event that gives a promise its outcome. The rules of signals
are in ``signals``, those of positions in ``positions``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from tidewheel.journal.events import (
    CANCEL,
    CancelRequested,
    Entry,
    ExecutionAwaiting,
    ExecutionResumed,
    InvokeCompleted,
    PromiseCreated,
    PromiseResolved,
    SignalReceived,
    StepSkipped,
    TimerCancelled,
    TimerFired,
    TimerScheduled,
)
from tidewheel.journal.rules.registry import CLOSING, Found, rule
from tidewheel.journal.status import MOVES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COMPLETIONS = (InvokeCompleted, StepSkipped, TimerFired, SignalReceived, PromiseResolved)
#: The events that end a block: the code runs again, or never again.
UNBLOCKS = CLOSING | {ExecutionResumed}
LISTED_MAX = 5


@rule("CF-1", TimerScheduled, TimerFired)
def timer_fired_requires_scheduled(entries: Sequence[Entry]) -> Iterator[Found]:
    """TimerFired(pid) requires a preceding TimerScheduled(pid)."""
    scheduled: set[str] = set()
    for entry in entries:
        match entry.event:
            case TimerScheduled(promise_id=pid):
                scheduled.add(pid)
            case TimerFired(promise_id=pid) if pid not in scheduled:
                yield entry, f"TimerFired for {pid}, but no TimerScheduled precedes it"


@rule("CF-5", TimerFired)
def timer_fired_once(entries: Sequence[Entry]) -> Iterator[Found]:
    """A promise has at most one TimerFired."""
    fired: dict[str, int] = {}
    for entry in entries:
        match entry.event:
            case TimerFired(promise_id=pid):
                if pid in fired:
                    yield entry, f"timer {pid} has already fired at {fired[pid]}"
                fired.setdefault(pid, entry.run_seq)


@rule("CF-6", TimerScheduled, TimerCancelled, TimerFired)
def timer_cancelled_is_final(entries: Sequence[Entry]) -> Iterator[Found]:
    """TimerCancelled comes once to a scheduled timer, and TimerFired never follows it."""
    scheduled: set[str] = set()
    cancelled: dict[str, int] = {}
    for entry in entries:
        match entry.event:
            case TimerScheduled(promise_id=pid):
                scheduled.add(pid)
            case TimerFired(promise_id=pid) if pid in cancelled:
                yield entry, f"timer {pid} fired, but it was cancelled at {cancelled[pid]}"
            case TimerCancelled(promise_id=pid):
                if pid in cancelled:
                    yield entry, f"timer {pid} was already cancelled at {cancelled[pid]}"
                elif pid not in scheduled:
                    yield entry, f"TimerCancelled for {pid}, but no TimerScheduled precedes it"
                cancelled.setdefault(pid, entry.run_seq)


@rule("CF-9", ExecutionAwaiting, *UNBLOCKS)
def resumed_from_blocked(entries: Sequence[Entry]) -> Iterator[Found]:
    """ExecutionResumed comes only to a blocked run."""
    blocked = False
    for entry in entries:
        if not blocked and type(entry.event) is ExecutionResumed:
            yield entry, "ExecutionResumed, but the run is not blocked"
        if type(entry.event) is ExecutionAwaiting:
            blocked = True
        elif type(entry.event) in UNBLOCKS:
            blocked = False


@rule("CF-10", *COMPLETIONS, CancelRequested, ExecutionAwaiting, ExecutionResumed)
def resumed_with_wait_satisfied(entries: Sequence[Entry]) -> Iterator[Found]:
    """ExecutionResumed requires that the wait is satisfied; a cancel not yet shown satisfies any.

    Kinds single and all need every promise, any needs one, signal needs its SignalReceived.
    """
    done: set[str] = set()
    received: set[str] = set()
    unshown: set[str] = set()
    waiting: ExecutionAwaiting | None = None
    cancel = False
    for entry in entries:
        match entry.event:
            case ExecutionAwaiting():
                waiting = entry.event
            case CancelRequested():
                cancel = True
            case ExecutionResumed(applied=applied):
                known = received if waiting and waiting.kind == "signal" else done
                if waiting and not cancel and not _satisfied(waiting, known, arrived=bool(unshown)):
                    promises = _listed(waiting.waiting_on)
                    yield entry, f"ExecutionResumed, but the wait on {promises} is not satisfied"
                waiting = None
                unshown.difference_update(unshown.copy() if applied is UNSET else applied)
                cancel = cancel and applied is not UNSET and CANCEL not in applied
            case event if isinstance(event, COMPLETIONS):
                unshown.add(event.promise_id)
                done.add(event.promise_id)
                if isinstance(event, SignalReceived):
                    received.add(event.promise_id)


@rule("CF-11", *MOVES, *UNBLOCKS)
def no_moves_while_blocked(entries: Sequence[Entry]) -> Iterator[Found]:
    """The code asks for nothing new while it is blocked."""
    blocked_at: int | None = None
    for entry in entries:
        if blocked_at is not None and type(entry.event) in MOVES:
            yield entry, f"{type(entry.event).__name__}, but the run is blocked since {blocked_at}"
        if type(entry.event) is ExecutionAwaiting:
            blocked_at = entry.run_seq
        elif type(entry.event) in UNBLOCKS:
            blocked_at = None


@rule("CF-12", *COMPLETIONS, CancelRequested, ExecutionResumed)
def applied_names_new_facts(entries: Sequence[Entry]) -> Iterator[Found]:
    """What applied lists precedes it and is shown once; without applied, all that is new is shown."""
    journaled: set[str] = set()
    unseen: set[str] = set()
    for entry in entries:
        match entry.event:
            case ExecutionResumed(applied=list(names)):
                for name in names:
                    if name not in journaled:
                        yield entry, f"applied lists {name}, but no such fact precedes it"
                    elif name not in unseen:
                        yield entry, f"applied lists {name}, which was shown before"
                    unseen.discard(name)
            case ExecutionResumed():
                unseen.clear()
            case event if isinstance(event, (CancelRequested, *COMPLETIONS)):
                name = CANCEL if isinstance(event, CancelRequested) else event.promise_id
                if name not in journaled:
                    unseen.add(name)
                journaled.add(name)


@rule("CF-15", PromiseCreated, PromiseResolved)
def promise_resolved_once(entries: Sequence[Entry]) -> Iterator[Found]:
    """PromiseResolved(pid) requires a preceding PromiseCreated(pid), and comes once."""
    created: set[str] = set()
    resolved: dict[str, int] = {}
    for entry in entries:
        match entry.event:
            case PromiseCreated(promise_id=pid):
                created.add(pid)
            case PromiseResolved(promise_id=pid):
                if pid in resolved:
                    yield entry, f"promise {pid} was already resolved at {resolved[pid]}"
                elif pid not in created:
                    yield entry, f"PromiseResolved for {pid}, but no PromiseCreated precedes it"
                resolved.setdefault(pid, entry.run_seq)


@rule("CF-16", ExecutionAwaiting)
def wait_is_for_something(entries: Sequence[Entry]) -> Iterator[Found]:
    """ExecutionAwaiting names at least one promise; an empty signal wait is CF-4's."""
    for entry in entries:
        match entry.event:
            case ExecutionAwaiting(kind="single" | "any" | "all" as kind, waiting_on=[]):
                yield entry, f"ExecutionAwaiting of kind {kind} waits on nothing"


def _satisfied(waiting: ExecutionAwaiting, known: set[str], *, arrived: bool) -> bool:
    """Tell whether *known* promises end the wait; a truncated one ends with whatever *arrived*."""
    promises = waiting.waiting_on
    if waiting.kind == "signal":
        return waiting.signal_promise_id in known or any(pid in known for pid in promises)
    if waiting.kind == "any":
        enough = any(pid in known for pid in promises) or (waiting.truncated is True and arrived)
        return enough or not promises
    return all(pid in known for pid in promises)


def _listed(promises: Sequence[str]) -> str:
    text = ", ".join(promises[:LISTED_MAX])
    return f"{text} and {len(promises) - LISTED_MAX} more" if len(promises) > LISTED_MAX else text
