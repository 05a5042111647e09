"""Planted bugs, to prove that the simulation would find such a one.

Each is a mistake that somebody could make, and that an ordinary test would hardly notice.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

from tidewheel.broker.protocol import Delivery
from tidewheel.broker.topology import COMMANDS
from tidewheel.replay.history import History
from tidewheel.store import facts
from tidewheel.store.append import Append, Appended, Fact, Fate, Moves, Started, Verdict
from tidewheel.store.ledger import Ledger
from tidewheel.store.memory import MemoryStore
from tidewheel.store.memory_rows import MemoryRows
from tidewheel.store.page import Page
from tidewheel.store.protocol import Loaded
from tidewheel.store.records import StepRecord
from tidewheel.workers.commands import Begun, Commands
from tidewheel.workers.inline import InlineSteps
from tidewheel.workers.keeper import Keeper
from tidewheel.workers.session import Session

Mutant = Callable[[], contextlib.AbstractContextManager[Any]]


def acknowledged_first() -> contextlib.AbstractContextManager[Any]:
    """A hint is acknowledged before anything is written."""
    take_turn = Session.take_turn

    def acknowledge_and_take_turn(self: Session, now: dt.datetime) -> None:
        for delivery in self._held.take():
            if delivery.queue == COMMANDS:
                self._held.add(delivery)
            else:
                self._services.acknowledge(delivery)
        take_turn(self, now)

    return mock.patch.object(Session, "take_turn", acknowledge_and_take_turn)


def commands_acknowledged_first() -> contextlib.AbstractContextManager[Any]:
    """A command is acknowledged before it is followed, as if it were a hint."""
    take = Commands.take

    async def acknowledge_and_take(self: Commands, delivery: Delivery) -> None:
        self._services.acknowledge(delivery)
        await take(self, delivery)

    return mock.patch.object(Commands, "take", acknowledge_and_take)


def commands_let_go() -> contextlib.AbstractContextManager[Any]:
    """A command that was held for long is let go like a hint, whether it was written or not."""

    async def acknowledge(self: Begun) -> None:
        await self._delivery.acknowledge()

    return mock.patch.object(Begun, "acknowledge", acknowledge)


def facts_dropped_with_moves() -> contextlib.AbstractContextManager[Any]:
    """Where the fence has gone, the results of the append are thrown away with its moves."""
    append = Ledger.append

    def append_or_drop(self: Ledger, request: Append) -> Appended:
        run = self._rows.run(request.run)
        if run is None or request.moves is None or run.token == request.moves.expected:
            return append(self, request)
        late = [Verdict.LATE] * len(request.facts)
        return Appended(run=request.run, now=self._now, verdicts=late, fate=Fate.STALE)

    return mock.patch.object(Ledger, "append", append_or_drop)


def landed_facts_forgotten() -> contextlib.AbstractContextManager[Any]:
    """What lands between "read the journal" and "suspend" wakes nobody."""

    def settle(self: Ledger, page: Page, _moves: Moves) -> None:
        self._answer.landed = []
        if not page.run.ended:
            page.run.wake_at, page.run.hints = None, 0

    return mock.patch.object(Ledger, "_settle_wake", settle)


def both_nets_removed() -> contextlib.AbstractContextManager[Any]:
    """Moves clear the wake-up although something landed, and deliveries are acknowledged first.

    Either alone is made good by the other: whoever dies before showing what landed has left a wake-up
    in the store, or a delivery that comes again.
    """

    def settle(_self: Ledger, page: Page, _moves: Moves) -> None:
        if not page.run.ended:
            page.run.wake_at, page.run.hints = None, 0

    @contextlib.contextmanager
    def both() -> Iterator[None]:
        with acknowledged_first(), mock.patch.object(Ledger, "_settle_wake", settle):
            yield

    return both()


def dedupe_key_ignored() -> contextlib.AbstractContextManager[Any]:
    """A signal that is sent again is a second one."""
    return mock.patch.object(MemoryRows, "is_known", return_value=False)


def idempotency_key_ignored() -> contextlib.AbstractContextManager[Any]:
    """A start that is repeated is a second run."""
    return mock.patch.object(MemoryRows, "run_by_idempotency_key", return_value=None)


def taken_over_in_silence() -> contextlib.AbstractContextManager[Any]:
    """A lost attempt is simply executed again, under its number."""

    def take_up(self: InlineSteps, step: StepRecord, _known: Any, loaded: Loaded, _held: Any) -> list[Fact]:
        if step.owner == self._me or step.owner not in loaded.alive:
            self._begin(step.path, step.attempt or 1, is_started=step.state == "started")
        return []

    return mock.patch.object(InlineSteps, "_take_up", take_up)


def cut_commit_not_resolved() -> contextlib.AbstractContextManager[Any]:
    """A claim whose reply was lost is taken for not written: repeated, it is somebody else's."""
    started = facts._RULES[Started]

    def started_by_somebody(page: Page, fact: Started) -> Verdict:
        verdict = started(page, fact)
        return Verdict.LATE if verdict is Verdict.DUPLICATE else verdict

    return mock.patch.dict(facts._RULES, {Started: started_by_somebody})


def zombies_are_heard() -> contextlib.AbstractContextManager[Any]:
    """A worker that was taken for dead may still report."""
    return mock.patch.object(facts, "is_current", lambda step, _fact: step.state != "parked")


def fence_ignored() -> contextlib.AbstractContextManager[Any]:
    """Moves are written whatever they were computed from."""
    move = Ledger._move

    def move_anyhow(self: Ledger, page: Page, moves: Moves, seq_before: int) -> Fate:
        page.run.token = moves.expected
        return move(self, page, moves, seq_before)

    return mock.patch.object(Ledger, "_move", move_anyhow)


def dead_workers_kept() -> contextlib.AbstractContextManager[Any]:
    """Nobody looks for workers that have died."""

    async def give_up(_self: MemoryStore, _worker_ids: Sequence[str]) -> None:
        return

    @contextlib.contextmanager
    def both() -> Iterator[None]:
        with (
            mock.patch.object(MemoryStore, "give_up", give_up),
            mock.patch.object(MemoryStore, "_is_alive", return_value=True),
        ):
            yield

    return both()


def hints_not_repeated() -> contextlib.AbstractContextManager[Any]:
    """A hint that was lost is not published again."""
    return mock.patch.object(Keeper, "_without_backlog", return_value=[])


def signals_left_behind() -> contextlib.AbstractContextManager[Any]:
    """Signals that were not consumed are not carried over to the next segment."""
    return mock.patch.object(History, "undelivered", return_value=[])


#: Those that must be found, each with faults that are common where it is looked for.
MUTANTS: dict[Mutant, dict[str, float]] = {
    facts_dropped_with_moves: {
        "slow": 0.3,
        "very_slow": 0.05,
        "hint_twice": 0.5,
        "crash_after_commit": 0.1,
    },
    landed_facts_forgotten: {},
    both_nets_removed: {"crash_after_commit": 0.25},
    dedupe_key_ignored: {},
    idempotency_key_ignored: {"commit_cut_after": 0.1},
    taken_over_in_silence: {},
    cut_commit_not_resolved: {"commit_cut_after": 0.3},
    zombies_are_heard: {},
    fence_ignored: {},
    dead_workers_kept: {"crash_after_commit": 0.05},
    hints_not_repeated: {},
    signals_left_behind: {},
    commands_acknowledged_first: {"crash": 1 / 300},
    commands_let_go: {"store_unavailable": 0.3, "very_slow": 0.05, "crash": 1 / 300},
}
