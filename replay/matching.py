"""Matching the code's commands to the journal's, and saying precisely where they differ.

A command is matched by its ``CommandId``: the n-th of its type in the segment, in the
order the verbs are called, or the one with its key. Counters advance on hits and
misses alike. A hit gives the recorded position; a miss is new work and takes the next
position that the journal does not use. A hit of another kind or name is a violation.
A hit with another input gives the recorded result and is counted, unless the code has
evidently asked for the same inputs in another order: then results would be swapped.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec
from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.journal.ids import CommandId, CommandType, position_of
from tidewheel.replay.history import INVOKE_TYPES, History, Record, SignalRecord
from tidewheel.replay.violation import Halted, Violation

logger = logging.getLogger("tidewheel.replay")

_INVOKE_KINDS = (CommandType.TASK, CommandType.CHILD, CommandType.OPERATION)
_canonical = msgspec.json.Encoder(order="deterministic").encode


_STEP = (ev.InvokeCompleted, ev.StepSkipped)
#: The facts that may complete a command of each type: another would hand the code a wrong-typed value.
COMPLETED_BY: dict[CommandType, tuple[type, ...]] = {
    CommandType.TASK: _STEP,
    CommandType.CHILD: _STEP,
    CommandType.OPERATION: _STEP,
    CommandType.TIMER: (ev.TimerFired,),
    CommandType.PROMISE: (ev.PromiseResolved,),
    CommandType.SIGNAL: (ev.SignalReceived,),
}


class Matcher:
    """The counters of one execution, set against what its journal recorded."""

    def __init__(
        self, history: History, *, run_path: str, strict_inputs: bool, halt: Callable[[], None]
    ) -> None:
        self.violation: Violation | None = None
        #: How often a hit had another input than the journal's.
        self.inputs_changed = 0
        self._history = history
        #: What a new command's path begins with.
        self._prefix = f"{run_path}." if run_path else ""
        self._strict_inputs = strict_inputs
        self._halt = halt
        self._counts: defaultdict[CommandType, int] = defaultdict(int)
        self._position = history.first_position
        self._inputs: dict[tuple[CommandType, str, bytes], list[CommandId]] | None = None
        self._displaced: dict[tuple[CommandType, str, bytes], CommandId] = {}

    def next(self, type_: CommandType, key: str | None = None) -> CommandId:
        """Identify the command the code is asking for now."""
        if key is not None:
            return CommandId(type_, key)
        n = self._counts[type_]
        self._counts[type_] = n + 1
        return CommandId(type_, n)

    def find(self, command: CommandId) -> Record | None:
        """Return what the journal has for *command*, and mark it as asked for."""
        history = self._history
        record = history.commands.get(command)
        if record is None:
            return None
        if not record.used:
            record.used = True
            history.unasked -= 1
        if record.position >= self._position:
            self._position = record.position + 1
        return record

    def allocate(self) -> str:
        """Give a new command the next position that the journal does not use."""
        taken = self._history.positions
        position = self._position
        while position in taken:
            position += 1
        self._position = position + 1
        return f"{self._prefix}{position}"

    def next_position(self) -> int:
        """The first position after all that were given out or recorded."""
        return max(self._position, max(self._history.positions, default=-1) + 1)

    def invoke(
        self, command: CommandId, kind: ev.InvokeKind, name: str, given: list[Any]
    ) -> ev.InvokeScheduled | None:
        """Match an invoke; None if it is new."""
        unasked = self._history.unasked
        record = self.find(command) if unasked else None
        if record is None:
            if unasked:
                self._refuse_other_kind(command, kind, name)
            if self._displaced:
                self._refuse_swapped(command, name, given)
            return None
        event: ev.InvokeScheduled = record.event
        if event.function_name != name or event.kind != kind:
            self.same(command, "function_name", event.function_name, name)
            self.same(command, "kind", event.kind, kind)
        if event.input != given:
            self._input_changed(command, name, event.input, given)
        return event

    def signal(self, command: CommandId, name: str) -> SignalRecord | None:
        """Match a signal wait; None if the journal never saw it."""
        record = self._history.signal(command.n)
        if record is not None:
            record.used = True
            self._position = max(self._position, position_of(record.path) + 1)
            self.same(command, "signal_name", record.signal_name, name)
        return record

    def value(self, command: CommandId, field: str, journal: Any, code: Any) -> None:
        """Compare an input that may differ unless inputs are strict."""
        if journal != code:
            self._note_input(command, field, journal, code)

    def same(self, command: CommandId | str, field: str, journal: Any, code: Any) -> None:
        """Compare what must be equal."""
        if journal != code:
            self.refuse(Violation(str(command), field, journal, code))

    def refuse(self, violation: Violation) -> NoReturn:
        """Stop the code: it no longer fits the journal."""
        if self.violation is None:
            self.violation = violation
        self._halt()
        raise Halted(self.violation.message)

    def _refuse_other_kind(self, command: CommandId, kind: ev.InvokeKind, name: str) -> None:
        # The same function asked for where the journal has it as another kind: a task turned
        # into a workflow, say. Numbered apart, it would only surface as an orphan at the end.
        for type_ in _INVOKE_KINDS:
            if type_ is command.type:
                continue
            which = self._counts[type_] if isinstance(command.which, int) else command.which
            record = self._history.commands.get(CommandId(type_, which))
            if record is not None and not record.used and record.event.function_name == name:
                self.same(CommandId(type_, which), "kind", record.event.kind, kind)

    # Inputs

    def _input_changed(self, command: CommandId, name: str, journal: Any, code: Any) -> None:
        self._refuse_swapped(command, name, code)
        self._note_input(command, "input", journal, code)
        if isinstance(command.which, int):  # keys cannot come in another order
            self._displaced[command.type, name, _canonical(journal)] = command

    def _note_input(self, command: CommandId, field: str, journal: Any, code: Any) -> None:
        if self._strict_inputs:
            self.refuse(Violation(str(command), field, journal, code))
        self.inputs_changed += 1
        logger.warning("%s: the journal has another %s than the code; using the journal's", command, field)

    def _refuse_swapped(self, command: CommandId, name: str, given: Any) -> None:
        record = self._history.commands.get(command)
        if isinstance(command.which, str) or (record is None and not self._displaced):
            return
        sought = (command.type, name, _canonical(given))
        other = self._displaced.get(sought)
        if other is None and record is not None:
            other = next(
                (
                    one
                    for one in self._recorded_inputs().get(sought, ())
                    if not self._history.commands[one].used
                ),
                None,
            )
        if other is None:
            return
        journal = None if record is None else record.event.input
        hint = f"that is {other}'s input: the order of the calls has changed"
        self.refuse(Violation(str(command), "input", journal, given, hint))

    def _recorded_inputs(self) -> dict[tuple[CommandType, str, bytes], list[CommandId]]:
        if self._inputs is None:
            found: dict[tuple[CommandType, str, bytes], list[CommandId]] = {}
            for command, record in self._history.commands.items():
                event = record.event
                if isinstance(event, ev.InvokeScheduled) and event.key is UNSET:
                    assert INVOKE_TYPES[event.kind] is command.type
                    key = (command.type, event.function_name, _canonical(event.input))
                    found.setdefault(key, []).append(command)
            self._inputs = found
        return self._inputs
