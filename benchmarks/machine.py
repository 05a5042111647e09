"""What the machine did meanwhile: CPU time by process tree, how much was taken by others, how fast it is."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

_TICK = os.sysconf("SC_CLK_TCK")
#: Processes that have just ended are counted by their parents a moment later.
_SETTLE_S = 0.15
#: Below this share of the machine nothing else is running.
_QUIET_SHARE = 0.06
_LOOK_S = 0.25


@dataclass(slots=True)
class Usage:
    """CPU seconds while a block lasted: by root of a process tree, and of everything else on the machine."""

    roots: Mapping[str, int]
    seconds: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=dict)
    noise: float = 0.0
    _began: tuple[float, dict[str, float], float] = (0.0, {}, 0.0)

    def __enter__(self) -> Self:
        self._began = time.perf_counter(), cpu_of_trees(self.roots), machine_busy_s()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        began, cpu_s, busy_s = self._began
        self.seconds = time.perf_counter() - began
        time.sleep(_SETTLE_S)
        self.cpu_s = {name: now - cpu_s[name] for name, now in cpu_of_trees(self.roots).items()}
        of_others_s = max(machine_busy_s() - busy_s - self.total_s, 0.0)
        self.noise = of_others_s / (self.seconds + _SETTLE_S) / (os.cpu_count() or 1)

    @property
    def total_s(self) -> float:
        """The CPU seconds of all the trees."""
        return sum(self.cpu_s.values())


def cpu_of_trees(roots: Mapping[str, int]) -> dict[str, float]:
    """Return the CPU seconds so far of each tree of processes, children that have ended included."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for pid, parent, seconds in _processes():
        parents[pid], spent[pid] = parent, seconds
    names = {pid: name for name, pid in roots.items()}
    found = dict.fromkeys(roots, 0.0)
    for pid, seconds in spent.items():
        ancestor = pid
        while ancestor in parents and ancestor not in names:
            ancestor = parents[ancestor]
        if ancestor in names:
            found[names[ancestor]] += seconds
    return found


def _processes() -> Iterator[tuple[int, int, float]]:
    """Yield every process with its parent and its CPU seconds, those of reaped children included."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text("utf-8")
            except OSError:
                continue
            fields = text.rpartition(")")[2].split()
            yield int(folder.name), int(fields[1]), sum(map(int, fields[11:15])) / _TICK


def machine_busy_s() -> float:
    """Return the CPU seconds that anybody has used."""
    user, nice, system, _idle, _wait, irq, soft, *_ = Path("/proc/stat").read_text("utf-8").split()[1:]
    return sum(map(int, (user, nice, system, irq, soft))) / _TICK


def memory_mb(pid: int) -> float:
    """Return the memory that a process has to itself."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def spin_ms() -> float:
    """Return how long a fixed piece of Python takes: the CPU itself may be slower than a minute ago."""
    began = time.perf_counter()
    total = 0
    for number in range(300_000):
        total += number & 7
    return (time.perf_counter() - began) * 1000


def wait_for_quiet(limit_s: float) -> bool:
    """Wait until nothing else uses the CPU; False if that takes too long."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        before = machine_busy_s()
        time.sleep(_LOOK_S)
        if machine_busy_s() - before <= _QUIET_SHARE * _LOOK_S * (os.cpu_count() or 1):
            return True
    return False
