"""The page about telemetry lists what there is: each span and each metric, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidewheel.telemetry import names

PAGE = Path(__file__).resolve().parents[3] / "docs" / "telemetry.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="an unpacked sdist has no pages")


def table(heading: str) -> list[list[str]]:
    """Return the rows of the first table under *heading*, without its head."""
    text = PAGE.read_text("utf-8").partition(f"\n## {heading}\n")[2]
    rows = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def listed(attributes: tuple[str, ...]) -> str:
    """Return *attributes* as the page has them."""
    return ", ".join(f"`{name}`" for name in attributes)


def test_the_page_has_all_spans() -> None:
    """Each with its kind, its meaning and what it says."""
    expected = [[f"`{span.name}`", span.kind, span.meaning, listed(span.attributes)] for span in names.SPANS]

    assert table("Spans") == expected


def test_the_page_has_all_metrics() -> None:
    """Each with its kind, its unit, its meaning and what tells its points apart."""
    expected = [
        [f"`{metric.name}`", metric.instrument, f"`{metric.unit}`", metric.meaning, listed(metric.attributes)]
        for metric in names.METRICS
    ]

    assert table("Metrics") == expected


def test_names_are_declared_once() -> None:
    """Two metrics of one name would be mixed up by whoever stores them."""
    metrics = [metric.name for metric in names.METRICS]

    assert len(set(metrics)) == len(metrics)
    assert [
        metric for metric in names.METRICS if (metric.instrument == "histogram") != bool(metric.bounds)
    ] == []


@pytest.mark.parametrize("metric", names.METRICS, ids=lambda metric: metric.name)
def test_no_metric_is_told_apart_by_run(metric: names.MetricName) -> None:
    """There is no end to runs, steps and messages: they are for spans."""
    endless = {
        names.RUN_ID,
        names.STEP,
        names.ATTEMPT,
        names.MESSAGE_ID,
        names.CONVERSATION,
        names.ROUTING_KEY,
    }

    assert not endless & set(metric.attributes)
    assert re.fullmatch(r"(tidewheel|messaging)(\.[a-z]+)+", metric.name)
