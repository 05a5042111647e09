"""Draws the main figure of the workloads that are compared: ``chart_program FIGURES.json CHART``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

#: What is drawn: a workload, its figure, and what that is called.
PANELS = (
    ("W1", "steps_s", "steps a second (more is better)"),
    ("W1", "cpu_ms", "CPU ms a step (less is better)"),
    ("W2", "p50_ms", "ms for a run of 5 steps, median (less is better)"),
    ("W3", "short_ms", "ms a step in a run of 1,000 (less is better)"),
)
#: How the program ends if none of it was measured.
NOTHING_TO_DRAW = 3
OURS, THEIRS = "#0b7a75", "#b8c4c2"


def main(figures: Path, chart: Path) -> bool:
    """Draw it as SVG and as PNG; false if there is nothing to be drawn."""
    found: dict[str, Any] = json.loads(figures.read_text("utf-8"))
    workloads = {workload["name"]: workload for workload in found["workloads"]}
    panels = [panel for panel in PANELS if panel[0] in workloads]
    if not panels:
        return False
    plt.switch_backend("Agg")
    mpl.rcParams.update({"font.size": 9, "svg.hashsalt": "tidewheel", "svg.fonttype": "none"})
    drawing, axes = plt.subplots(len(panels), 1, figsize=(7.5, 1.9 * len(panels)), squeeze=False)
    for axis, (name, figure, title) in zip(axes[:, 0], panels, strict=True):
        _draw(axis, workloads[name], figure, title)
    drawing.tight_layout()
    for suffix in ("svg", "png"):
        drawing.savefig(f"{chart}.{suffix}", dpi=150, metadata={"Date": None} if suffix == "svg" else None)
    return True


def _draw(axis: Any, workload: dict[str, Any], figure: str, title: str) -> None:
    bars = [
        (
            system["name"],
            system["medians"][figure],
            [value[figure] for value in system["rounds"] if figure in value],
        )
        for system in workload["systems"]
        if system["medians"].get(figure) is not None and system["name"] != "tidewheel x2"
    ]
    bars.reverse()
    names = [name for name, _, _ in bars]
    middles = [middle for _, middle, _ in bars]
    spread = [
        [middle - min(values) for _, middle, values in bars],
        [max(values) - middle for _, middle, values in bars],
    ]
    colors = [OURS if name.startswith("tidewheel") else THEIRS for name in names]
    axis.barh(names, middles, xerr=spread, color=colors, error_kw={"lw": 0.8, "capsize": 2, "ecolor": "#444"})
    for row, (_, middle, values) in enumerate(bars):
        shown = f"{middle:,.0f}" if middle >= 100 else f"{middle:,.2f}"
        beside = (max(values), row)
        axis.annotate(shown, beside, xytext=(6, 0), textcoords="offset points", va="center", fontsize=8)
    axis.set_title(f"{workload['name']}: {title}", loc="left", fontsize=9)
    axis.margins(x=0.12)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


if __name__ == "__main__":
    sys.exit(0 if main(Path(sys.argv[1]), Path(sys.argv[2])) else NOTHING_TO_DRAW)
