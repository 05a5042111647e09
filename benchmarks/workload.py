"""What a workload is. Each is a file in ``workloads`` that defines ``WORKLOAD``; nothing else knows of it."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks import workloads
from benchmarks.systems import Driver, System

#: What one measurement gives: figures by name.
Measured = dict[str, float]


@dataclass(frozen=True, slots=True)
class Figure:
    """A column of the table."""

    name: str
    unit: str
    better: Literal["more", "less"] = "less"
    digits: int = 2


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure of ours has to be, next to the same figure of others (or to ``beside``, of ``of``).

    *of* is a system, or ``peers`` for the best of them, or nothing where the figure is judged by itself.
    Theirs is that of the same workload, or of the one that *within* names.
    """

    figure: str
    at_least: float | None = None
    at_most: float | None = None
    of: str | None = "peers"
    beside: str | None = None
    within: str | None = None
    ours: str = "tidewheel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Something that is measured. *measure* is given sizes as they are for a quick or a full bench."""

    name: str
    title: str
    figures: Sequence[Figure]
    systems: Sequence[System]
    measure: Callable[[Driver, Mapping[str, int]], Measured]
    full: Mapping[str, int]
    quick: Mapping[str, int]
    targets: Sequence[Target] = ()
    #: How often it is measured in a full bench, if it takes too long to be measured every round.
    rounds_max: int | None = None
    #: Whether a quick bench leaves it out.
    full_only: bool = False


def known() -> list[Workload]:
    """Return the workloads that there are, in the order of their files."""
    names = sorted(module.name for module in pkgutil.iter_modules(workloads.__path__))
    return [importlib.import_module(f"{workloads.__name__}.{name}").WORKLOAD for name in names]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which so many are."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.floor(len(ordered) * share))]
