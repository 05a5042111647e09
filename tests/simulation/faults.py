"""What goes wrong, how often, and how often it did.

A seed also draws how rough its world is, so that some seeds are nearly calm, where long histories
come about, and others are a storm. ``calm`` ends it all.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(kw_only=True)
class Odds:
    """How likely each fault is, per operation, message or step."""

    crash: float = 1 / 1500
    crash_after_commit: float = 1 / 150
    slow: float = 0.03
    very_slow: float = 0.002
    store_unavailable: float = 0.01
    commit_cut_before: float = 0.02
    commit_cut_after: float = 0.02
    request_dies_with_sender: float = 0.5
    broker_unavailable: float = 0.01
    hint_lost: float = 0.05
    hint_twice: float = 0.05
    hint_late: float = 0.1
    #: Per half a second of virtual time.
    freeze: float = 0.1
    consumer_cut: float = 0.1
    clock_jump: float = 0.05
    graceful_stop: float = 0.1


class Faults:
    """Draws the faults of one world, and counts them."""

    def __init__(self, chance: random.Random, odds: Mapping[str, float]) -> None:
        """Draw how rough it is; *odds* are certain."""
        self.chance = chance
        self.counts: Counter[str] = Counter()
        roughness = chance.choice((0.2, 1.0, 1.0, 2.5))
        self.odds = Odds(**{name: odds * roughness for name, odds in vars(Odds()).items()})
        self.odds.request_dies_with_sender = 0.5
        for name, certain in odds.items():
            setattr(self.odds, name, certain)

    def calm(self) -> None:
        """Let nothing go wrong from now on."""
        self.odds = Odds(**dict.fromkeys(vars(self.odds), 0.0))

    def strikes(self, name: str) -> bool:
        """Tell whether the fault of this name happens now."""
        odds: float = getattr(self.odds, name)
        if odds <= 0.0 or self.chance.random() >= odds:
            return False
        self.counts[name] += 1
        return True

    def latency_s(self) -> float:
        """Draw how long a message takes."""
        if self.strikes("very_slow"):
            return self.chance.uniform(1.0, 8.0)
        if self.strikes("slow"):
            return self.chance.uniform(0.02, 0.5)
        return self.chance.uniform(0.0002, 0.005)
