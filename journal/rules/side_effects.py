"""SE: an invoke is scheduled, started and completed, in this order and once.

A retry is one more start under the same promise. ``StepSkipped`` is a completion
that an operator gave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidewheel.journal.events import (
    Entry,
    InvokeCompleted,
    InvokeRetrying,
    InvokeScheduled,
    InvokeStarted,
    StepSkipped,
)
from tidewheel.journal.rules.registry import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@rule("SE-1", InvokeScheduled, InvokeStarted)
def started_requires_scheduled(entries: Sequence[Entry]) -> Iterator[Found]:
    """InvokeStarted(pid) requires a preceding InvokeScheduled(pid)."""
    scheduled: set[str] = set()
    for entry in entries:
        match entry.event:
            case InvokeScheduled(promise_id=pid):
                scheduled.add(pid)
            case InvokeStarted(promise_id=pid) if pid not in scheduled:
                yield entry, f"InvokeStarted for {pid}, but no InvokeScheduled precedes it"


@rule("SE-2", InvokeStarted, InvokeCompleted)
def completed_requires_started(entries: Sequence[Entry]) -> Iterator[Found]:
    """InvokeCompleted(pid) requires a preceding InvokeStarted(pid)."""
    started: set[str] = set()
    for entry in entries:
        match entry.event:
            case InvokeStarted(promise_id=pid):
                started.add(pid)
            case InvokeCompleted(promise_id=pid) if pid not in started:
                yield entry, f"InvokeCompleted for {pid}, but no InvokeStarted precedes it"


@rule("SE-3", InvokeStarted, InvokeRetrying)
def retrying_requires_started(entries: Sequence[Entry]) -> Iterator[Found]:
    """InvokeRetrying(pid, attempt) requires a preceding InvokeStarted(pid, attempt)."""
    started: set[tuple[str, int]] = set()
    for entry in entries:
        match entry.event:
            case InvokeStarted(promise_id=pid, attempt=attempt):
                started.add((pid, attempt))
            case InvokeRetrying(promise_id=pid, failed_attempt=attempt) if (pid, attempt) not in started:
                yield entry, f"InvokeRetrying for attempt {attempt} of {pid}, which was not started"


@rule("SE-4", InvokeStarted, InvokeRetrying, InvokeCompleted, StepSkipped)
def no_events_after_completed(entries: Sequence[Entry]) -> Iterator[Found]:
    """No InvokeStarted or InvokeRetrying follows the completion of the same promise."""
    completed: dict[str, int] = {}
    for entry in entries:
        match entry.event:
            case InvokeCompleted(promise_id=pid) | StepSkipped(promise_id=pid):
                completed.setdefault(pid, entry.run_seq)
            case InvokeStarted(promise_id=pid) | InvokeRetrying(promise_id=pid) if pid in completed:
                name = type(entry.event).__name__
                yield entry, f"{name} for {pid}, which was completed at {completed[pid]}"


@rule("SE-5", InvokeScheduled)
def scheduled_once(entries: Sequence[Entry]) -> Iterator[Found]:
    """A promise has at most one InvokeScheduled."""
    scheduled: dict[str, int] = {}
    for entry in entries:
        match entry.event:
            case InvokeScheduled(promise_id=pid) if pid in scheduled:
                yield entry, f"a second InvokeScheduled for {pid}; the first is at {scheduled[pid]}"
            case InvokeScheduled(promise_id=pid):
                scheduled[pid] = entry.run_seq


@rule("SE-6", InvokeCompleted, StepSkipped)
def completed_once(entries: Sequence[Entry]) -> Iterator[Found]:
    """A promise has at most one InvokeCompleted or StepSkipped."""
    completed: dict[str, int] = {}
    for entry in entries:
        match entry.event:
            case InvokeCompleted(promise_id=pid) | StepSkipped(promise_id=pid):
                if pid in completed:
                    yield entry, f"a second completion of {pid}; the first is at {completed[pid]}"
                completed.setdefault(pid, entry.run_seq)


@rule("SE-7", InvokeStarted, InvokeCompleted, StepSkipped)
def attempts_rise_by_one(entries: Sequence[Entry]) -> Iterator[Found]:
    """Attempts of a promise start at 1 and rise by one; starts after its completion are SE-4's."""
    latest: dict[str, int] = {}
    completed: set[str] = set()
    for entry in entries:
        match entry.event:
            case InvokeCompleted(promise_id=pid) | StepSkipped(promise_id=pid):
                completed.add(pid)
            case InvokeStarted(promise_id=pid, attempt=attempt) if pid not in completed:
                expected = latest.get(pid, 0) + 1
                if attempt != expected:
                    yield entry, f"attempt {attempt} of {pid} started, expected attempt {expected}"
                latest[pid] = attempt


@rule("SE-8", InvokeStarted, InvokeRetrying, InvokeCompleted)
def completed_names_current_attempt(entries: Sequence[Entry]) -> Iterator[Found]:
    """InvokeCompleted names the latest started attempt, and not one that InvokeRetrying failed."""
    latest: dict[str, int] = {}
    failed: set[tuple[str, int]] = set()
    for entry in entries:
        match entry.event:
            case InvokeStarted(promise_id=pid, attempt=attempt):
                latest[pid] = attempt
            case InvokeRetrying(promise_id=pid, failed_attempt=attempt):
                failed.add((pid, attempt))
            case InvokeCompleted(promise_id=pid, attempt=attempt) if pid in latest:
                if attempt != latest[pid]:
                    yield entry, f"attempt {attempt} completed {pid}, but the latest is {latest[pid]}"
                elif (pid, attempt) in failed:
                    yield entry, f"attempt {attempt} completed {pid}, but it had failed before"


@rule("SE-9", InvokeScheduled, StepSkipped)
def skipped_requires_scheduled(entries: Sequence[Entry]) -> Iterator[Found]:
    """StepSkipped(pid) requires a preceding InvokeScheduled(pid)."""
    scheduled: set[str] = set()
    for entry in entries:
        match entry.event:
            case InvokeScheduled(promise_id=pid):
                scheduled.add(pid)
            case StepSkipped(promise_id=pid) if pid not in scheduled:
                yield entry, f"StepSkipped for {pid}, but no InvokeScheduled precedes it"


@rule("SE-10", InvokeRetrying, InvokeCompleted, StepSkipped)
def attempt_fails_once(entries: Sequence[Entry]) -> Iterator[Found]:
    """An attempt has at most one InvokeRetrying; those after the promise's completion are SE-4's."""
    failed: set[tuple[str, int]] = set()
    completed: set[str] = set()
    for entry in entries:
        match entry.event:
            case InvokeCompleted(promise_id=pid) | StepSkipped(promise_id=pid):
                completed.add(pid)
            case InvokeRetrying(promise_id=pid, failed_attempt=attempt) if pid not in completed:
                if (pid, attempt) in failed:
                    yield entry, f"a second InvokeRetrying for attempt {attempt} of {pid}"
                failed.add((pid, attempt))
