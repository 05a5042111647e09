"""JS: a join set is opened, filled, then drained; each member is an invoke of its own.

``JoinSetAwaited`` marks which result the code consumed; a set takes no more members
once the first one was consumed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidewheel.journal.events import (
    Entry,
    InvokeCompleted,
    InvokeScheduled,
    JoinSetAwaited,
    JoinSetCreated,
    JoinSetSubmitted,
    Result,
    StepSkipped,
)
from tidewheel.journal.jsonform import canonical
from tidewheel.journal.rules.registry import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@rule("JS-1", JoinSetCreated, JoinSetSubmitted)
def submit_requires_created(entries: Sequence[Entry]) -> Iterator[Found]:
    """JoinSetSubmitted(js) requires a preceding JoinSetCreated(js)."""
    created: set[str] = set()
    for entry in entries:
        match entry.event:
            case JoinSetCreated(join_set_id=js):
                created.add(js)
            case JoinSetSubmitted(join_set_id=js) if js not in created:
                yield entry, f"JoinSetSubmitted to {js}, but no JoinSetCreated precedes it"


@rule("JS-2", JoinSetSubmitted, JoinSetAwaited)
def no_submit_after_await(entries: Sequence[Entry]) -> Iterator[Found]:
    """No JoinSetSubmitted(js) follows any JoinSetAwaited(js)."""
    awaited: dict[str, int] = {}
    for entry in entries:
        match entry.event:
            case JoinSetAwaited(join_set_id=js):
                awaited.setdefault(js, entry.run_seq)
            case JoinSetSubmitted(join_set_id=js) if js in awaited:
                yield entry, f"JoinSetSubmitted to {js}, which closed at its first await, {awaited[js]}"


@rule("JS-3", JoinSetSubmitted, JoinSetAwaited)
def awaited_requires_member(entries: Sequence[Entry]) -> Iterator[Found]:
    """JoinSetAwaited(js, pid) requires a preceding JoinSetSubmitted(js, pid)."""
    members: set[tuple[str, str]] = set()
    for entry in entries:
        match entry.event:
            case JoinSetSubmitted(join_set_id=js, promise_id=pid):
                members.add((js, pid))
            case JoinSetAwaited(join_set_id=js, promise_id=pid) if (js, pid) not in members:
                yield entry, f"JoinSetAwaited of {pid}, which was not submitted to {js}"


@rule("JS-4", InvokeCompleted, StepSkipped, JoinSetAwaited)
def awaited_requires_completed(entries: Sequence[Entry]) -> Iterator[Found]:
    """JoinSetAwaited(_, pid) requires a preceding completion of pid."""
    completed: set[str] = set()
    for entry in entries:
        match entry.event:
            case InvokeCompleted(promise_id=pid) | StepSkipped(promise_id=pid):
                completed.add(pid)
            case JoinSetAwaited(promise_id=pid) if pid not in completed:
                yield entry, f"JoinSetAwaited of {pid}, which is not completed"


@rule("JS-5", JoinSetAwaited)
def no_double_consume(entries: Sequence[Entry]) -> Iterator[Found]:
    """No two JoinSetAwaited have the same (js, pid)."""
    consumed: dict[tuple[str, str], int] = {}
    for entry in entries:
        match entry.event:
            case JoinSetAwaited(join_set_id=js, promise_id=pid):
                if (js, pid) in consumed:
                    yield entry, f"{pid} was already consumed from {js} at {consumed[js, pid]}"
                consumed.setdefault((js, pid), entry.run_seq)


@rule("JS-6", JoinSetSubmitted, JoinSetAwaited)
def consume_bounded(entries: Sequence[Entry]) -> Iterator[Found]:
    """Per set, JoinSetAwaited are never more than JoinSetSubmitted."""
    submitted: Counter[str] = Counter()
    awaited: Counter[str] = Counter()
    for entry in entries:
        match entry.event:
            case JoinSetSubmitted(join_set_id=js):
                submitted[js] += 1
            case JoinSetAwaited(join_set_id=js):
                awaited[js] += 1
                if awaited[js] > submitted[js]:
                    yield entry, f"{js} was awaited {awaited[js]} times with {submitted[js]} submitted"


@rule("JS-7", JoinSetSubmitted)
def promise_single_owner(entries: Sequence[Entry]) -> Iterator[Found]:
    """A promise appears in at most one join set."""
    owner: dict[str, str] = {}
    for entry in entries:
        match entry.event:
            case JoinSetSubmitted(join_set_id=js, promise_id=pid):
                if owner.setdefault(pid, js) != js:
                    yield entry, f"{pid} was submitted to {js}, but it belongs to {owner[pid]}"


@rule("JS-8", JoinSetSubmitted)
def submitted_once(entries: Sequence[Entry]) -> Iterator[Found]:
    """A promise is submitted to a set once."""
    submitted: dict[tuple[str, str], int] = {}
    for entry in entries:
        match entry.event:
            case JoinSetSubmitted(join_set_id=js, promise_id=pid):
                if (js, pid) in submitted:
                    yield entry, f"{pid} was already submitted to {js} at {submitted[js, pid]}"
                submitted.setdefault((js, pid), entry.run_seq)


@rule("JS-9", JoinSetCreated, JoinSetSubmitted)
def no_set_in_a_set(entries: Sequence[Entry]) -> Iterator[Found]:
    """A join set is never a member of a set."""
    created: set[str] = set()
    for entry in entries:
        match entry.event:
            case JoinSetCreated(join_set_id=js):
                created.add(js)
            case JoinSetSubmitted(join_set_id=js, promise_id=pid) if pid in created:
                yield entry, f"{pid} was submitted to {js}, but it is a join set itself"


@rule("JS-10", InvokeScheduled, JoinSetCreated, JoinSetSubmitted)
def members_are_invokes(entries: Sequence[Entry]) -> Iterator[Found]:
    """JoinSetSubmitted(_, pid) requires a preceding InvokeScheduled(pid); sets in sets are JS-9's."""
    known: set[str] = set()
    for entry in entries:
        match entry.event:
            case InvokeScheduled(promise_id=pid) | JoinSetCreated(join_set_id=pid):
                known.add(pid)
            case JoinSetSubmitted(join_set_id=js, promise_id=pid) if pid not in known:
                yield entry, f"{pid} was submitted to {js}, but no InvokeScheduled precedes it"


@rule("JS-11", JoinSetCreated, JoinSetSubmitted, JoinSetAwaited)
def awaited_requires_created(entries: Sequence[Entry]) -> Iterator[Found]:
    """JoinSetAwaited(js) of a member requires a preceding JoinSetCreated(js); others are JS-3's."""
    created: set[str] = set()
    members: set[tuple[str, str]] = set()
    for entry in entries:
        match entry.event:
            case JoinSetCreated(join_set_id=js):
                created.add(js)
            case JoinSetSubmitted(join_set_id=js, promise_id=pid):
                members.add((js, pid))
            case JoinSetAwaited(join_set_id=js, promise_id=pid) if js not in created:
                if (js, pid) in members:
                    yield entry, f"JoinSetAwaited from {js}, but no JoinSetCreated precedes it"


@rule("JS-12", InvokeCompleted, StepSkipped, JoinSetAwaited)
def awaited_result_is_the_members(entries: Sequence[Entry]) -> Iterator[Found]:
    """The result of JoinSetAwaited(_, pid), where it has one, is that of pid's completion."""
    results: dict[str, Result] = {}
    for entry in entries:
        match entry.event:
            case InvokeCompleted(promise_id=pid, result=own) | StepSkipped(promise_id=pid, result=own):
                results.setdefault(pid, own)
            case JoinSetAwaited(promise_id=pid, result=Result() as shown) if pid in results:
                if canonical(shown) != canonical(results[pid]):
                    yield entry, f"the result of {pid} is not the one that its completion has"
