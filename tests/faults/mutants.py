"""The code, broken on purpose: a test that does not notice would not notice a mistake either."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidewheel.store import facts
from tidewheel.store.append import Append, Fate, Moves
from tidewheel.store.ledger import Ledger
from tidewheel.store.page import Page
from tidewheel.store.protocol import Answered
from tidewheel.workers.session import Session
from tidewheel.workers.turn import Turn
from tidewheel.workers.writer import Writer


def acknowledge_first() -> None:
    """Settle the delivery before the append that it led to (K6)."""
    submit, move = Writer.submit, Session._move

    def mutated(self: Session, turn: Turn) -> None:
        for delivery in self._held.take():
            self._services.acknowledge(delivery)
        move(self, turn)

    def late(self: Writer, what: Append, answered: Answered) -> None:
        asyncio.get_running_loop().call_later(0.05, submit, self, what, answered)  # until the broker has it

    Session._move = mutated  # type: ignore[method-assign]  # that is the mutation
    Writer.submit = late  # type: ignore[method-assign,assignment]  # as above


def ignore_the_fence() -> None:
    """Commit moves whatever the run's token is."""
    move = Ledger._move

    def mutated(self: Ledger, page: Page, moves: Moves, seq_before: int) -> Fate:
        page.run.token = moves.expected
        return move(self, page, moves, seq_before)

    Ledger._move = mutated  # type: ignore[method-assign]  # that is the mutation


def believe_zombies() -> None:
    """Take the result of any attempt, whoever has the step now."""
    facts.is_current = lambda step, fact: True  # noqa: ARG005 - that is the mutation


#: By name, for processes that are told which to be.
APPLIED: dict[str, Callable[[], None]] = {
    "acknowledge_first": acknowledge_first,
    "believe_zombies": believe_zombies,
    "ignore_the_fence": ignore_the_fence,
}
