"""The code, broken on purpose: a test that does not notice would not notice a mistake either."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidewheel.store import facts
from tidewheel.store.append import Fate, Moves
from tidewheel.store.ledger import Ledger
from tidewheel.store.page import Page
from tidewheel.workers.session import Session, Turn


def acknowledge_first() -> None:
    """Settle the delivery before the append that it led to (K6)."""
    append = Session._append

    async def mutated(self: Session, turn: Turn) -> None:
        for delivery in self._take_held():
            await delivery.acknowledge()
        await asyncio.sleep(0.05)  # until the broker has it
        await append(self, turn)

    Session._append = mutated  # type: ignore[method-assign]  # that is the mutation


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
