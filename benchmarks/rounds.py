"""Measures workloads round by round: every system once a round, in another order each time.

Machines are noisy, and not in the same way for long. What is compared is therefore measured close together,
often, and its middle is taken; how much else was running is kept beside every value.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks import machine
from benchmarks.environments import NotToBeHad
from benchmarks.systems import Servers, System, driving
from benchmarks.workload import Measured, Workload

#: How long a measurement waits for others to leave the machine alone, in a full bench and in a quick one.
QUIET_S_MAX, QUIET_S_MAX_QUICK = 5.0, 1.0


@dataclass(slots=True)
class Series:
    """What a system did in a workload, round by round."""

    workload: Workload
    system: System
    values: list[Measured] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def of(self, figure: str) -> list[float]:
        """Return the values of a figure."""
        return [value[figure] for value in self.values if figure in value]

    def median(self, figure: str) -> float | None:
        """Return the middle one."""
        values = self.of(figure)
        return statistics.median(values) if values else None


@dataclass(slots=True)
class Bench:
    """Everything that is to be measured, and what came of it."""

    workloads: Sequence[Workload]
    systems: Sequence[str]
    rounds: int
    quick: bool
    say: Callable[[str], None]
    series: dict[tuple[str, str], Series] = field(default_factory=dict)
    #: Systems that cannot be had here, and why.
    missing: dict[str, str] = field(default_factory=dict)

    def run(self, servers: Servers) -> None:
        """Measure all rounds."""
        for number in range(self.rounds):
            for workload in self.workloads:
                if workload.rounds_max is None or number < workload.rounds_max:
                    self._round(workload, servers, number)

    def _round(self, workload: Workload, servers: Servers, number: int) -> None:
        chosen = [system for system in workload.systems if system.name in self.systems]
        turn = number % len(chosen) if chosen else 0
        for system in [*chosen[turn:], *chosen[:turn]]:
            if system.name not in self.missing:
                began = time.monotonic()
                said = self._measure(workload, system, servers)
                place = f"round {number + 1} of {self.rounds}, {workload.name:<3} {system.name:<20}"
                self.say(f"{place} {said}  ({time.monotonic() - began:.0f} s)")

    def _measure(self, workload: Workload, system: System, servers: Servers) -> str:
        """Measure once, and return what there is to say of it."""
        key = workload.name, system.name
        series = self.series.setdefault(key, Series(workload, system))
        sizes = workload.quick if self.quick else workload.full
        try:
            with driving(system, servers) as driver:
                machine.wait_for_quiet(QUIET_S_MAX_QUICK if self.quick else QUIET_S_MAX)
                spin_ms = machine.spin_ms()
                measured = workload.measure(driver, sizes)
        except NotToBeHad as error:
            self.missing[system.name] = str(error)
            return f"left out: {error}"
        except (RuntimeError, OSError, TimeoutError) as error:
            series.failures.append(str(error))
            return f"FAILED: {error}"
        series.values.append({**measured, "spin_ms": spin_ms})
        return ", ".join(
            f"{measured[figure.name]:,.{figure.digits}f} {figure.unit}"
            for figure in workload.figures
            if figure.name in measured
        )


def best(found: Iterable[float], better: str) -> float | None:
    """Return the best of them."""
    values = list(found)
    if not values:
        return None
    return max(values) if better == "more" else min(values)
