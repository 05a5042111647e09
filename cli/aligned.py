"""Rows of text as columns that stand under each other."""

from __future__ import annotations

from collections.abc import Sequence

from tidewheel.cli.timeline.text import columns


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return *rows*, all of the same length, as lines; what a terminal shows wide counts as that."""
    widths = [max(columns(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        "  ".join(
            cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
