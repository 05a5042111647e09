"""What was done to a fleet, and when: one line of JSON for each fault, written as it happens.

Nothing of the product is used here; times are seconds of this machine's clock.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

#: What was troubled.
Kind: TypeAlias = Literal["worker", "relay", "projector", "postgres", "broker", "network"]


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


#: A run that goes on within this time was not held up: it takes as long without any fault.
HELD_UP_S = 0.1

#: A moment that several faults share is judged as the one after which most patience is due.
_PATIENCE: Sequence[Kind] = ("worker", "network", "postgres", "broker")


class Event(NamedTuple):
    """One entry of a journal: when, and which."""

    at: float
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """A run that was held up by a fault: for how long, and between which events."""

    kind: Kind
    fault: Fault
    seconds: float
    run_id: str
    before: str
    after: str

    def __str__(self) -> str:
        what = f"{self.fault.kind} {self.fault.how}"
        return f"{self.seconds:.2f} s: {self.run_id} from {self.before} to {self.after}, after {what}"


def standstills(faults: Sequence[Fault], journals: Iterable[tuple[str, Sequence[Event]]]) -> list[Standstill]:
    """Return every time that a run was held up by a fault.

    *journals* are runs with their events. A run that is under way stands still from the first death of a
    worker after its latest event until its next event, whether or not it was with that worker, and however
    many died meanwhile. While a server or a network is away nothing can be expected: it then stands still
    from the moment when the last of them is back. Runs that went on as if nothing had happened are left out.
    """
    ordered = sorted(faults, key=lambda fault: fault.over_at)
    found: list[Standstill] = []
    for run_id, events in journals:
        index = 0
        for before, after in itertools.pairwise(events):
            while index < len(ordered) and ordered[index].over_at <= before.at:
                index += 1
            first = index
            while index < len(ordered) and ordered[index].over_at < after.at:
                index += 1
            between = ordered[first:index]
            outages = [fault for fault in between if fault.kind != "worker"]
            cause = outages[-1] if outages else between[0] if between else None
            if cause is not None and after.at - cause.over_at >= HELD_UP_S:
                found.append(
                    Standstill(
                        kind=max((fault.kind for fault in between), key=_PATIENCE.index),
                        fault=cause,
                        seconds=after.at - cause.over_at,
                        run_id=run_id,
                        before=before.type,
                        after=after.type,
                    )
                )
    return sorted(found, key=lambda one: one.fault.over_at)


def by_kind(found: Iterable[Standstill]) -> dict[Kind, list[float]]:
    """Return the seconds of standstills, by what was troubled."""
    seconds: dict[Kind, list[float]] = {kind: [] for kind in _PATIENCE}
    for one in found:
        seconds[one.kind].append(one.seconds)
    return seconds


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that *share* of *values* do not exceed; of none, zero."""
    ranked = sorted(values)
    return ranked[min(int(share * len(ranked)), len(ranked) - 1)] if ranked else 0.0
