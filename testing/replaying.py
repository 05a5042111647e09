"""Replaying recorded journals, to see that today's code still does what it did."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from tidewheel.journal import events as ev
from tidewheel.journal import verify as rules
from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.ids import PromiseId
from tidewheel.journal.jsonform import dumps, loads
from tidewheel.journal.rules import Breach
from tidewheel.replay.execution import Execution
from tidewheel.replay.violation import DETERMINISM_VIOLATION, RETURN, Violation
from tidewheel.sdk.definitions import WorkflowDefinition, workflow_definition
from tidewheel.sdk.program import execution_of

#: Entries, or the JSON form: its text, its bytes, or the path of a file that holds it.
Journal = Iterable[ev.Entry] | bytes | str | pathlib.Path


_ENDS = (*ev.TERMINAL, ev.ExecutionContinued)


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """What replaying a journal came to."""

    outcome: str
    result: Any | UnsetType = UNSET
    error: ev.Error | UnsetType = UNSET
    waiting_on: list[str] | UnsetType = UNSET
    violation: Violation | UnsetType = UNSET
    orphaned: list[str] | UnsetType = UNSET
    #: How many recorded steps were asked for with another input than the journal's.
    inputs_changed: int | UnsetType = UNSET
    #: Whether the code's digest is the one the journal was recorded with.
    same_code: bool | UnsetType = UNSET

    def to_json(self) -> dict[str, Any]:
        """The report as ``tidewheel replay`` prints it."""
        report: dict[str, Any] = msgspec.to_builtins(self)
        if self.violation is not UNSET:
            report["violation"] = self.violation.to_json()
        return report


def verify(journal: Journal) -> list[Breach]:
    """Return every breach of the journal's rules; none is what you want."""
    data = _bytes(journal)
    return rules.verify_bytes(data) if isinstance(data, bytes) else rules.verify(list(data))


def load_journal(journal: Journal) -> list[ev.Entry]:
    """Read a journal from its JSON form; ``InvalidRequest`` names the first thing that is wrong."""
    data = _bytes(journal)
    return loads(data) if isinstance(data, bytes) else list(data)


def dump_journal(entries: Iterable[ev.Entry]) -> str:
    """Write a journal in its JSON form, one event a line."""
    return dumps(list(entries)).decode()


def _bytes(journal: Journal) -> Iterable[ev.Entry] | bytes:
    if isinstance(journal, pathlib.Path):
        return journal.read_bytes()
    return journal.encode() if isinstance(journal, str) else journal


def replay(workflow: Callable[..., Any] | WorkflowDefinition, journal: Journal) -> ReplayReport:
    """Run *workflow* against a recorded journal and report where it stands, or where it differs.

    Nothing is executed: results come from the journal.
    """
    definition = workflow if isinstance(workflow, WorkflowDefinition) else workflow_definition(workflow)
    entries = load_journal(journal)
    report: ReplayReport | None = None
    first_position = 0
    for segment in segments(entries):
        report = _replay_segment(definition, segment, first_position)
        if report.outcome != "continued":
            break
        last = segment[-1].event
        first_position = last.next_position if isinstance(last, ev.ExecutionContinued) else 0
    if report is None:
        message = "the journal is empty: there is nothing to replay"
        raise InvalidRequest(message)
    return report


def segments(entries: list[ev.Entry]) -> list[list[ev.Entry]]:
    """Split a journal at its continuations."""
    found: list[list[ev.Entry]] = []
    current: list[ev.Entry] = []
    for entry in entries:
        current.append(entry)
        if isinstance(entry.event, ev.ExecutionContinued):
            found.append(current)
            current = []
    return [*found, current] if current else found


def _replay_segment(
    definition: WorkflowDefinition, entries: list[ev.Entry], first_position: int
) -> ReplayReport:
    started = entries[0].event
    if not isinstance(started, ev.ExecutionStarted):
        message = f"a journal begins with ExecutionStarted, this one with {type(started).__name__}"
        raise InvalidRequest(message)
    if started.workflow and started.workflow != definition.name:
        message = f"the journal is of workflow {started.workflow!r}, not {definition.name!r}"
        raise InvalidRequest(message)
    execution = execution_of(
        definition, _run_of(entries), entropy=_NoEntropy(), first_position=first_position
    )
    try:
        execution.load(entries)
        report = _report(execution, entries[-1].event)
        changed = execution.matcher.inputs_changed or UNSET
    finally:
        execution.evict()
    same_code = UNSET if not started.component_digest else started.component_digest == definition.digest
    return msgspec.structs.replace(report, same_code=same_code, inputs_changed=changed)


def _report(execution: Execution, last: ev.Event) -> ReplayReport:
    execution.replay()
    ended = execution.ending()
    violation = execution.matcher.violation
    orphans = execution.history.orphans() if violation is None else []
    orphaned = [orphan.command for orphan in orphans] or UNSET
    over = ended is not None or isinstance(last, _ENDS)
    if orphans and over and not execution.policy.allow_orphans:
        violation = orphans[0]
        if isinstance(ended, ev.ExecutionFailed):
            hint = f"it ended early, with {ended.error.type}: {ended.error.message}"
            violation = msgspec.structs.replace(violation, hint=hint)
    if violation is not None:
        return ReplayReport(outcome="violation", violation=violation, orphaned=orphaned)
    if ended is None:
        # Also where the journal has ended: code that asks for more than it has is an extension.
        return ReplayReport(outcome="blocked", waiting_on=execution.waiting_on(), orphaned=orphaned)
    difference = _difference(last, ended)
    if difference is not None:
        return ReplayReport(outcome="violation", violation=difference, orphaned=orphaned)
    match ended:
        case ev.ExecutionCompleted(result=result):
            return ReplayReport(outcome="completed", result=result.ok, orphaned=orphaned)
        case ev.ExecutionFailed(error=error):
            return ReplayReport(outcome="failed", error=error, orphaned=orphaned)
        case ev.ExecutionCancelled():
            return ReplayReport(outcome="cancelled", orphaned=orphaned)
        case _:
            return ReplayReport(outcome="continued", orphaned=orphaned)


def _difference(recorded: ev.Event, ended: ev.Event) -> Violation | None:
    """Compare how the code ends with how the journal says it ended, if it has."""
    if not isinstance(recorded, _ENDS):
        return None
    if isinstance(recorded, ev.ExecutionFailed) and recorded.error.type == DETERMINISM_VIOLATION:
        return None  # it ended because the code of that day did not fit
    if type(recorded) is not type(ended):
        return Violation(RETURN, "outcome", type(recorded).__name__, type(ended).__name__)
    match recorded, ended:
        case ev.ExecutionCompleted(result=before), ev.ExecutionCompleted(result=after) if before != after:
            return Violation(RETURN, "result", before.ok, after.ok)
        case ev.ExecutionFailed(error=old), ev.ExecutionFailed(error=new) if old.type != new.type:
            return Violation(RETURN, "error", old.type, new.type)
        case _:
            return None


def _run_of(entries: list[ev.Entry]) -> PromiseId:
    """The run's id; where a journal lacks it, its path is read off its commands."""
    started = entries[0].event
    if isinstance(started, ev.ExecutionStarted) and started.run_id is not UNSET:
        return PromiseId.parse(started.run_id)
    for entry in entries:
        for field in ("promise_id", "join_set_id"):
            path = getattr(entry.event, field, None)
            if isinstance(path, str):
                return PromiseId("replayed", path.rpartition(".")[0])
    return PromiseId("replayed")


class _NoEntropy:
    """New commands of changed code are not executed here, so any value does."""

    def random(self) -> float:
        return 0.0

    def uuid(self) -> str:
        return "00000000-0000-4000-8000-000000000000"
