"""What is done to the event pipeline and when: worked out beforehand from a seed, spread over the runs."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

#: What is troubled, and how: killed with SIGKILL, or stopped for longer than others wait for it.
BusTrouble: TypeAlias = Literal[
    "relay kill",
    "relay pause",
    "projector kill",
    "projector pause",
    "worker kill",
    "broker kill",
    "broker app",
]

#: Nothing happens while the pipeline begins and while it comes to its end: each fault falls among runs.
_CALM_BEFORE, _CALM_AFTER = 0.02, 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class BusPlan:
    """How much is to be done. ``open_max`` runs are under way at a time."""

    seed: int
    runs: int
    troubles: Mapping[BusTrouble, int]
    open_max: int
    #: Everything has to be over by then.
    limit_s: float
    #: How long the bus is away once the storm is over, while so many runs a second go on.
    outage_s: float
    outage_runs_per_s: int

    def schedule(self) -> list[tuple[int, BusTrouble]]:
        """Return the troubles, each with how many runs have ended before it."""
        chance = random.Random(self.seed)
        wanted = [trouble for trouble, count in self.troubles.items() for _ in range(count)]
        chance.shuffle(wanted)
        room = 1 - _CALM_BEFORE - _CALM_AFTER
        return [
            (int(self.runs * (_CALM_BEFORE + room * (place + chance.random()) / len(wanted))), trouble)
            for place, trouble in enumerate(wanted)
        ]


def long_bus_plan(*, seed: int, runs: int, minutes: float, outage_s: float) -> BusPlan:
    """Return the long form for so many runs; 20,000 of them is the whole."""
    share = runs / 20_000
    return BusPlan(
        seed=seed,
        runs=runs,
        troubles={
            "relay kill": round(120 * share),
            "relay pause": round(15 * share),
            "projector kill": round(120 * share),
            "projector pause": round(15 * share),
            "worker kill": round(30 * share),
            "broker kill": round(10 * share),
            "broker app": round(5 * share),
        },
        open_max=100,
        limit_s=minutes * 60,
        outage_s=outage_s,
        outage_runs_per_s=50,
    )


def short_bus_plan(seed: int) -> BusPlan:
    """Return what every ``make test`` does."""
    return BusPlan(
        seed=seed,
        runs=400,
        troubles={
            "relay kill": 4,
            "relay pause": 1,
            "projector kill": 4,
            "projector pause": 1,
            "worker kill": 1,
            "broker kill": 1,
        },
        open_max=30,
        limit_s=120.0,
        outage_s=0.0,
        outage_runs_per_s=0,
    )
