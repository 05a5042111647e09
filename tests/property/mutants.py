"""Executions with a planted bug, to prove that the harness would notice."""

from __future__ import annotations

from typing import Any

from tests.property.programs import app, interpret
from tests.property.shell import RUN, CountingEntropy
from tidewheel.journal import events as ev
from tidewheel.journal.ids import CommandId, CommandType
from tidewheel.replay.execution import Execution
from tidewheel.sdk.program import WorkflowProgram


class _AllAtOnce(Execution):
    """Hands back every recorded result before the code has moved."""

    _holding = False

    def _show_recorded(self) -> None:
        self._holding = False
        super()._show_recorded()
        self._holding = False
        super()._move()

    def _show(self, fact: str) -> None:
        self._holding = not self.live
        super()._show(fact)
        self._holding = False

    def _move(self) -> None:
        if not self._holding:
            super()._move()


class _FinishOrder(Execution):
    """Numbers the journal's steps by when they finished instead of when they were asked for."""

    def load(self, entries: Any) -> None:
        """Index the journal, then number its tasks wrongly."""
        entries = list(entries)
        super().load(entries)
        if len(entries) < 2:
            return
        finished = [e.event.promise_id for e in entries if isinstance(e.event, ev.InvokeCompleted)]
        rank = {path: place for place, path in enumerate(finished)}
        commands = self.history.commands
        tasks = [c for c in commands if c.type is CommandType.TASK and isinstance(c.which, int)]
        records = sorted((commands[c] for c in tasks), key=lambda r: rank.get(r.path, len(rank)))
        for n, record in enumerate(records):
            commands[CommandId(CommandType.TASK, n)] = record


def _make(kind: type[Execution], entropy: CountingEntropy, first_position: int) -> Execution:
    definition = app.workflow_named(interpret)
    return kind(
        WorkflowProgram(definition),
        RUN,
        policy=definition.policy,
        entropy=entropy,
        first_position=first_position,
    )


def all_results_at_once(entropy: CountingEntropy, first_position: int) -> Execution:
    """Make an execution with the first planted bug."""
    return _make(_AllAtOnce, entropy, first_position)


def numbered_in_finish_order(entropy: CountingEntropy, first_position: int) -> Execution:
    """Make an execution with the second planted bug."""
    return _make(_FinishOrder, entropy, first_position)
