"""What is done to a fleet and when: worked out beforehand from a seed, in shares of the work that is done.

Faults are spread over the runs and not over time: a fast machine has as many for each run as a slow one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Trouble: TypeAlias = Literal[
    "postgres crash", "postgres kill", "broker app", "broker restart", "broker kill", "network storm"
]

#: Nothing happens while the fleet begins and while it comes to its end: each fault falls among runs.
_CALM_BEFORE, _CALM_AFTER = 0.02, 0.04


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is to be done; at least ``kills`` workers are killed, ``per_point`` at each point."""

    seed: int
    runs: int
    kills: int
    per_point: int
    troubles: Mapping[Trouble, int]
    #: How many runs are under way at a time, and how many workers may be dying.
    open_max: int
    dying_max: int = 2
    #: Everything has to be over by then.
    limit_s: float
    #: Whether there are enough faults, and enough of the machine, to judge how long runs stood still.
    is_timed: bool = True

    def schedule(self) -> list[tuple[float, Trouble]]:
        """Return the troubles of servers and networks, each with the share of the runs before it."""
        chance = random.Random(self.seed)
        wanted = [trouble for trouble, count in self.troubles.items() for _ in range(count)]
        chance.shuffle(wanted)
        room = 1 - _CALM_BEFORE - _CALM_AFTER
        return [
            (_CALM_BEFORE + room * (place + chance.random()) / len(wanted), trouble)
            for place, trouble in enumerate(wanted)
        ]

    def share_before_kill(self, number: int) -> float:
        """Return the share of the runs after which kill *number* comes, counted from 0."""
        return min(_CALM_BEFORE + (1 - _CALM_BEFORE - _CALM_AFTER) * number / self.kills, 1 - _CALM_AFTER)


def long_plan(*, seed: int, runs: int, minutes: float) -> Plan:
    """Return the long form for so many runs; 10,000 of them is the whole."""
    share = runs / 10_000
    return Plan(
        seed=seed,
        runs=runs,
        kills=round(1_000 * share),
        per_point=max(round(20 * share), 1),
        troubles={
            "postgres crash": round(40 * share),
            "postgres kill": round(10 * share),
            "broker app": round(10 * share),
            "broker restart": round(5 * share),
            "broker kill": round(5 * share),
            "network storm": round(50 * share),
        },
        open_max=24,
        limit_s=minutes * 60,
    )


def short_plan(seed: int) -> Plan:
    """Return what every ``make test`` does."""
    return Plan(
        seed=seed,
        runs=300,
        kills=10,
        per_point=1,
        troubles={"postgres crash": 1, "broker app": 1, "network storm": 1},
        open_max=20,
        limit_s=240.0,
        is_timed=False,
    )
