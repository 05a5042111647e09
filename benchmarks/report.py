"""What was measured, as tables for people, as JSON for programs, and held against the targets."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.rounds import Bench, Series, best
from benchmarks.workload import Figure, Target, Workload

#: Rounds in which others took more of the machine than this are told.
NOISY = 0.10


def table(bench: Bench) -> Iterator[str]:
    """Yield the lines of a table for each workload: the middle of all rounds, and between what they lay."""
    for workload in bench.workloads:
        rows = [series for (name, _), series in bench.series.items() if name == workload.name]
        if not rows:
            continue
        yield ""
        yield f"{workload.name}  {workload.title}"
        heads = [*(figure.unit for figure in workload.figures), "next to us"]
        yield f"  {'':<20}" + "".join(f"{head:>34}" for head in heads)
        ours = rows[0]
        for row in rows:
            cells = [_cell(row, figure) for figure in workload.figures]
            yield f"  {row.system.name:<20}" + "".join(f"{cell:>34}" for cell in [*cells, _ratio(row, ours)])
            if row.failures:
                yield f"  {'':<20}  failed {len(row.failures)} times, last: {row.failures[-1]}"
        for row in rows:
            yield f"    {row.system.name}: {row.system.setting}{_noise(row)}"
    for name, why in bench.missing.items():
        yield f"{name} was left out: {why}"


def _cell(series: Series, figure: Figure) -> str:
    values, middle = series.of(figure.name), series.median(figure.name)
    if middle is None:
        return "-"
    digits = figure.digits
    return f"{middle:,.{digits}f} ({min(values):,.{digits}f}..{max(values):,.{digits}f})"


def _ratio(series: Series, ours: Series) -> str:
    figure = series.workload.figures[0].name
    mine, theirs = ours.median(figure), series.median(figure)
    if series is ours or not mine or not theirs:
        return ""
    return f"{theirs / mine:.2f} x"


def _noise(series: Series) -> str:
    noisy = [value for value in series.of("noise") if value > NOISY]
    return f"; {len(noisy)} of {len(series.values)} rounds noisy" if noisy else ""


def verdicts(bench: Bench) -> Iterator[tuple[str, bool]]:
    """Yield every target that can be judged, and whether it is met."""
    for workload in bench.workloads:
        for target in workload.targets:
            judged = _judged(bench, workload, target)
            if judged is not None:
                yield judged


def _judged(bench: Bench, workload: Workload, target: Target) -> tuple[str, bool] | None:
    ours = bench.series.get((workload.name, target.ours))
    figure = next(figure for figure in workload.figures if figure.name == target.figure)
    value = ours.median(figure.name) if ours else None
    if value is None:
        return None
    whose = "" if target.ours == "tidewheel" else f" of {target.ours}"
    told = f"{workload.name} {figure.unit}{whose}: {value:,.{figure.digits}f}"
    if target.of is not None:
        beside = _beside(bench, workload, target, figure)
        if not beside:
            return None
        value /= beside
        where = f" in {target.within}" if target.within else ""
        told += f", {value:.2f} times that of {target.of}{where} ({beside:,.{figure.digits}f})"
    if target.at_least is not None:
        return f"{told}; at least {target.at_least:g}", value >= target.at_least
    assert target.at_most is not None
    return f"{told}; at most {target.at_most:.4g}", value <= target.at_most


def _beside(bench: Bench, workload: Workload, target: Target, figure: Figure) -> float | None:
    """Return the figure that ours is held against."""
    where = target.within or workload.name
    if target.of == "peers":
        rows = [
            series
            for (name, system), series in bench.series.items()
            if name == where and not system.startswith("tidewheel")
        ]
        medians = [series.median(figure.name) for series in rows]
        return best([median for median in medians if median is not None], figure.better)
    assert target.of is not None
    name = "W0" if target.of == "limits" else where
    series = bench.series.get((name, target.of))
    return series.median(target.beside or figure.name) if series else None


def document(bench: Bench, seconds: float) -> dict[str, Any]:
    """Return everything as JSON has it."""
    return {
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "load": os.getloadavg()[0],
        },
        "command": sys.argv[1:],
        "seconds": round(seconds, 1),
        "rounds": bench.rounds,
        "quick": bench.quick,
        "missing": bench.missing,
        "targets": [{"target": text, "met": met} for text, met in verdicts(bench)],
        "workloads": [
            {
                "name": workload.name,
                "title": workload.title,
                "sizes": dict(workload.quick if bench.quick else workload.full),
                "figures": [
                    {"name": one.name, "unit": one.unit, "better": one.better} for one in workload.figures
                ],
                "systems": [
                    {
                        "name": series.system.name,
                        "setting": series.system.setting,
                        "medians": {one.name: series.median(one.name) for one in workload.figures},
                        "rounds": series.values,
                        "failures": series.failures,
                    }
                    for (name, _), series in bench.series.items()
                    if name == workload.name
                ],
            }
            for workload in bench.workloads
        ],
    }
