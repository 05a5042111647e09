"""What an outcome is worth: everything that is wrong with it, and how it is shown to people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.chaos.history import Fault, Kind, Standstill, by_kind, quantile
from tests.chaos.storm import Outcome

#: How soon a run that a fault held up has to go on, in 99 of 100 cases.
RECOVERY_P99_S: dict[Kind, float] = {"worker": 2.0, "network": 5.0, "postgres": 5.0, "broker": 5.0}
_SHOWN_MAX = 20
_EVENTS_MIN = 10
_LONGEST = 10
#: The bounds of the histogram's columns.
_BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


def complaints(outcome: Outcome) -> Iterator[str]:
    """Yield what is wrong; of findings that are many, the first."""
    yield from outcome.wrong[:_SHOWN_MAX]
    yield from map(str, outcome.report.findings[:_SHOWN_MAX])
    if len(outcome.report.findings) > _SHOWN_MAX:
        yield f"{len(outcome.report.findings)} findings in all"
    yield from _too_little(outcome)
    recovery_s = by_kind(outcome.standstills)
    for kind, limit_s in RECOVERY_P99_S.items() if outcome.plan.is_timed else ():
        p99_s = quantile(recovery_s[kind], 0.99)
        if p99_s > limit_s:
            yield f"recovery from {kind} faults takes {p99_s:.2f} s (p99); it may take {limit_s:g} s"


def _too_little(outcome: Outcome) -> Iterator[str]:
    plan = outcome.plan
    if outcome.completed < plan.runs:
        yield f"{outcome.completed} runs completed of {plan.runs}"
    if outcome.report.events < _EVENTS_MIN * outcome.started:
        yield f"{outcome.report.events} events are fewer than {_EVENTS_MIN} for each run"
    kills = sum(fault.kind == "worker" for fault in outcome.faults)
    if kills < plan.kills:
        yield f"{kills} workers killed of {plan.kills}"
    made = Counter(f"{fault.kind} {fault.how}" for fault in outcome.faults)
    for trouble, count in plan.troubles.items():
        if made[trouble] < count:
            yield f"{trouble}: {made[trouble]} of {count}"
    missed = {point: outcome.hits.get(point, 0) for point in outcome.wanted}
    missed = {point: count for point, count in missed.items() if count < plan.per_point}
    if missed:
        yield f"points hit less than {plan.per_point} times: {missed}"


def shown(outcome: Outcome) -> str:
    """Return the outcome as people read it."""
    report = outcome.report
    repeated = ", ".join(f"{name} {count}" for name, count in report.repeated.most_common()) or "none"
    hits = sum(outcome.hits.values())
    fewest = min((outcome.hits.get(point, 0) for point in outcome.wanted), default=0)
    met = ", ".join(f"{name} {count}" for name, count in outcome.troubles.items()) or "none"
    lines = [
        f"seed {outcome.plan.seed}, {outcome.seconds:.0f} s",
        f"runs: {outcome.started} started, {outcome.completed} completed",
        f"journals, those of children included: {report.runs} with {report.events} events",
        f"faults: {_counted(outcome.faults)}",
        f"points: {len(outcome.wanted)}, each hit at least {fewest} times; {hits} in all",
        f"effects: {report.executions} executed; more than once: {report.repeated.total()} ({repeated})",
        f"errors that customers met, and asked again: {met}",
        f"findings: {len(report.findings)}",
        "",
        *_histogram(outcome),
        "",
        *_worst(outcome),
        "",
        "the longest:",
        *map(str, sorted(outcome.standstills, key=lambda one: -one.seconds)[:_LONGEST]),
    ]
    return "\n".join(lines)


def _counted(faults: list[Fault]) -> str:
    killed = sum(fault.kind == "worker" for fault in faults)
    others = Counter(f"{fault.kind} {fault.how}" for fault in faults if fault.kind != "worker")
    return ", ".join([f"worker SIGKILL {killed}", *(f"{what} {count}" for what, count in others.items())])


def _worst(outcome: Outcome) -> Iterator[str]:
    """Yield the same for the one run that each fault held up the longest: not judged, but to be known."""
    worst: dict[Fault, Standstill] = {}
    for one in sorted(outcome.standstills, key=lambda one: one.seconds):
        worst[one.fault] = one
    for kind, values in by_kind(worst.values()).items():
        marks = ", ".join(f"{share:.0%} {quantile(values, share):.2f} s" for share in (0.5, 0.95, 0.99))
        yield f"worst run of each of {len(values)} faults, {kind}: {marks}"


def _histogram(outcome: Outcome) -> Iterator[str]:
    heads = [*(f"<{bound:g}s" for bound in _BOUNDS_S), "more"]
    marks = "".join(f"{mark:>7}" for mark in ("p50", "p95", "p99", "max"))
    yield f"{'recovery':<10}{marks}  " + "".join(f"{head:>7}" for head in heads)
    for kind, values in by_kind(outcome.standstills).items():
        marks = "".join(f"{quantile(values, share):>7.2f}" for share in (0.5, 0.95, 0.99, 1.0))
        counts = [0] * (len(_BOUNDS_S) + 1)
        for value in values:
            counts[sum(value >= bound for bound in _BOUNDS_S)] += 1
        yield f"{kind:<10}{marks}  " + "".join(f"{count:>7}" for count in counts)
