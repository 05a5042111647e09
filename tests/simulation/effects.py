"""The side effects of steps, written down as they happen, and what must never be among them.

1. An attempt number of a step is executed once.
2. No body begins after its step's completion was journaled. A worker that others had reason to
   take for dead (it was frozen, cut off, or its lease ran out) may begin late: nobody can stop it,
   and its result is refused. Those are counted.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar

from tests.simulation.loop import Process, current_process
from tidewheel.sdk.current_task import CurrentTask, current_task


class Effects:
    """The bodies that began in one world."""

    def __init__(
        self,
        chance: random.Random,
        *,
        is_completed: Callable[[str, str], bool],
        is_doubted: Callable[[Process], bool],
        fail: Callable[[str], None],
    ) -> None:
        self.chance = chance
        self.begun: dict[tuple[str, int], str] = {}
        self.counts: Counter[str] = Counter()
        self._is_completed = is_completed
        self._is_doubted = is_doubted
        self._fail = fail

    def begin(self, step: CurrentTask) -> None:
        """A body begins."""
        process = current_process()
        self.counts["bodies"] += 1
        which = (step.idempotency_key, step.attempt)
        if which in self.begun:
            self._fail(
                f"attempt {step.attempt} of {step.idempotency_key} is executed by {process.name} and was "
                f"by {self.begun[which]}"
            )
        self.begun[which] = process.name
        path = step.idempotency_key.partition(":")[2]
        if self._is_completed(step.run_id, path):
            if self._is_doubted(process):
                self.counts["zombie bodies"] += 1
            else:
                self._fail(
                    f"{process.name} begins attempt {step.attempt} of {step.idempotency_key}, "
                    "whose completion is in the journal"
                )


EFFECTS: ContextVar[Effects] = ContextVar("simulated_effects")


def begin() -> CurrentTask:
    """Write down that the current step begins, and return it."""
    step = current_task()
    EFFECTS.get().begin(step)
    return step


async def take_a_while(longest_s: float) -> None:
    """Let some time pass in a body: usually little, now and then as much as *longest_s*."""
    chance = EFFECTS.get().chance
    await asyncio.sleep(chance.choice((0.0, 0.001, 0.1 * longest_s, longest_s)) * chance.random())
