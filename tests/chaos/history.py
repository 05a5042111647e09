"""What was done to a fleet, and when: one line of JSON for each fault, written as it happens.

Nothing of the product is used here; times are seconds of this machine's clock.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias

#: What was troubled.
Kind: TypeAlias = Literal["worker", "postgres", "broker", "network"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. ``over_at`` is when its cause was gone: at once, or when a server was back."""

    kind: Kind
    how: str
    at: float
    over_at: float
    pid: int | None = None


class History:
    """The faults so far, also in a file."""

    def __init__(self, path: Path, seed: int) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._file.write(json.dumps({"seed": seed}) + "\n")
        self.faults: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Write a fault down."""
        self.faults.append(fault)
        self._file.write(json.dumps(asdict(fault)) + "\n")

    def count(self, kind: Kind, how: str = "") -> int:
        """Return how many faults of a kind there were, in ways that begin with *how*."""
        return sum(fault.kind == kind and fault.how.startswith(how) for fault in self.faults)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


#: A moment that several faults share is judged as the one after which most patience is due.
_PATIENCE: Sequence[Kind] = ("worker", "network", "postgres", "broker")


def recoveries(faults: Sequence[Fault], journals: Iterable[Sequence[float]]) -> dict[Kind, list[float]]:
    """Return how long runs stood still after faults, by what was troubled; one number for each fault.

    *journals* are the times of each run's events. A run that was under way stands still from the moment the
    last fault before its next event was over until that event. A fault's number is that of the run that it
    held up the longest. Where several faults fell between two events, only the last counts: the others were
    interrupted; and it is judged as the kind among them that is due most patience.
    """
    ordered = sorted(faults, key=lambda fault: fault.over_at)
    longest: dict[tuple[Kind, int], float] = {}
    for times in journals:
        index = 0
        for before, after in itertools.pairwise(times):
            while index < len(ordered) and ordered[index].over_at <= before:
                index += 1
            first = index
            while index < len(ordered) and ordered[index].over_at < after:
                index += 1
            between = ordered[first:index]
            if between:
                kind = max((fault.kind for fault in between), key=_PATIENCE.index)
                key = (kind, index - 1)
                longest[key] = max(longest.get(key, 0.0), after - between[-1].over_at)
    found: dict[Kind, list[float]] = {kind: [] for kind in _PATIENCE}
    for (kind, _), stood_s in sorted(longest.items()):
        found[kind].append(stood_s)
    return found


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that *share* of *values* do not exceed; of none, zero."""
    ranked = sorted(values)
    return ranked[min(int(share * len(ranked)), len(ranked) - 1)] if ranked else 0.0
