"""What the outcome of a bus storm is worth: everything that is wrong with it, and how people are shown it."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator

from tests.chaos.bus_storm import BusOutcome
from tests.chaos.history import quantile

_SHOWN_MAX = 20
_SHARES = (0.5, 0.95, 0.99, 1.0)
_MARKS = ("p50", "p95", "p99", "max")


def bus_complaints(outcome: BusOutcome) -> Iterator[str]:
    """Yield what is wrong; of findings that are many, the first."""
    yield from outcome.wrong[:_SHOWN_MAX]
    findings = outcome.report.findings
    yield from map(str, findings[:_SHOWN_MAX])
    if len(findings) > _SHOWN_MAX:
        by_rule = Counter(finding.rule for finding in findings)
        yield f"{len(findings)} findings in all: {dict(by_rule)}"
    if outcome.completed < outcome.plan.runs:
        yield f"{outcome.completed} runs ended of {outcome.plan.runs}"
    gaps = outcome.alerts.get("PROJECTOR_GAP_DETECTED", 0)
    if gaps:
        # It read them from the journal, so that the snapshots are right in the end; but RabbitMQ loses none.
        yield f"{gaps} times events did not reach a projector that somebody had acknowledged for it"
    made = Counter(f"{fault.kind} {fault.how}" for fault in outcome.faults)
    for trouble, count in outcome.plan.troubles.items():
        if made[trouble] < count:
            yield f"{trouble}: {made[trouble]} of {count}"
    if outcome.outage is not None:
        yield from outcome.outage.complaints()


def bus_shown(outcome: BusOutcome) -> str:
    """Return the outcome as people read it."""
    report = outcome.report
    faults = Counter(f"{fault.kind} {fault.how}" for fault in outcome.faults)
    repeated = report.heard - len(outcome.heard_at) if outcome.outage is None else None
    lines = [
        f"seed {outcome.plan.seed}, {outcome.seconds:.0f} s",
        f"runs: {outcome.started} started, {outcome.completed} ended as they should",
        f"faults: {_counted(faults)}",
        f"errors that senders met, and asked again: {_counted(outcome.troubles)}",
        f"public events: {report.published} of {report.runs} runs; heard {report.heard} times"
        + ("" if repeated is None else f", {repeated} of them again"),
        f"snapshots: {report.rebuilt.level} of {report.rebuilt.runs} equal a rebuild",
        f"all was told, heard and projected {outcome.drained_s:.1f} s after the last run of the storm",
        f"alerts: {_counted(outcome.alerts)}",
        f"findings: {len(report.findings)}",
        "",
        f"{'seconds':<28}" + "".join(f"{mark:>8}" for mark in _MARKS),
        _row("events heard after", outcome.lags_s),
        *(_row(f"silence after {what}", values) for what, values in _silences(outcome).items()),
    ]
    if outcome.outage is not None:
        lines += ["", str(outcome.outage)]
    return "\n".join(lines)


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{what} {count}" for what, count in sorted(counts.items())) or "none"


def _row(what: str, values: list[float]) -> str:
    return f"{what:<28}" + "".join(f"{quantile(values, share):>8.2f}" for share in _SHARES)


def _silences(outcome: BusOutcome) -> dict[str, list[float]]:
    """Return how long after each fault was over something new was heard, by what it was.

    A silence in which RabbitMQ went away is the fault of that.
    """
    heard_at = sorted(outcome.heard_at)
    away = [fault for fault in outcome.faults if fault.kind == "broker"]
    found: dict[str, list[float]] = {}
    for fault in outcome.faults:
        place = bisect.bisect_left(heard_at, fault.over_at)
        if place == len(heard_at):
            continue
        heard, since = heard_at[place], fault.over_at
        if not any(other is not fault and other.at < heard and other.over_at > since for other in away):
            found.setdefault(f"{fault.kind} {fault.how}", []).append(heard - since)
    return dict(sorted(found.items()))
