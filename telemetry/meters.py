"""Figures: counted and measured as they come, or read from whoever keeps them when they are to be sent.

What somebody counts anyway is *observed*: reading it costs nothing until then. Several of a kind in one
process, as in tests, are added up; whoever goes away takes its gauges along.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from opentelemetry.metrics import MeterProvider, Observation

from tidewheel.telemetry.names import METRICS, MetricName

#: Figures with what tells them apart.
Figures: TypeAlias = Iterable[tuple[float, Mapping[str, str]]]


class Meters:
    """All metrics of this process."""

    def __init__(self, provider: MeterProvider, version: str) -> None:
        self._meter = provider.get_meter("tidewheel", version)
        self._add: dict[str, Callable[[float, Mapping[str, Any]], None]] = {}
        self._watched: dict[str, list[Callable[[], Figures]]] = {}
        for metric in METRICS:
            if metric.instrument == "histogram":
                histogram = self._meter.create_histogram(
                    metric.name,
                    metric.unit,
                    metric.meaning,
                    explicit_bucket_boundaries_advisory=metric.bounds,
                )
                self._add[metric.name] = histogram.record

    def count(self, metric: MetricName, attributes: Mapping[str, Any], amount: int = 1) -> None:
        """Count up."""
        add = self._add.get(metric.name)
        if add is None:
            counter = self._meter.create_counter(metric.name, metric.unit, metric.meaning)
            add = self._add[metric.name] = counter.add
        add(amount, attributes)

    def record(self, metric: MetricName, attributes: Mapping[str, Any], value: float) -> None:
        """Take a measure."""
        self._add[metric.name](value, attributes)

    def observe(self, metric: MetricName, owner: Any, read: Callable[[Any], Figures]) -> None:
        """Ask *read* for the figures of *owner*, as long as that is there, whenever they are to be sent."""
        known = weakref.ref(owner)

        def figures() -> Figures:
            found = known()
            return () if found is None else read(found)

        watched = self._watched.get(metric.name)
        if watched is not None:
            watched.append(figures)
            return
        self._watched[metric.name] = [figures]
        create = (
            self._meter.create_observable_counter
            if metric.instrument == "counter"
            else self._meter.create_observable_gauge
        )
        create(metric.name, [lambda _options: self._observed(metric)], metric.unit, metric.meaning)

    def _observed(self, metric: MetricName) -> list[Observation]:
        found: dict[tuple[tuple[str, str], ...], float] = {}
        for figures in self._watched[metric.name]:
            for value, attributes in figures():
                key = tuple(sorted(attributes.items()))
                found[key] = found.get(key, 0) + value
        return [Observation(value, dict(key)) for key, value in found.items()]
