"""A run as it goes: one line of how it stands, and a sentence for each thing that happens.

``RunProgress`` is fed entries as they come; one it has seen already changes nothing, so a reader
may start over. It keeps what is open and counts of the rest, so that a run may be watched for ever.
Sentences are on one line, safe for a terminal, and cut where a payload or a message is long.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import UNSET

from tidewheel.cli.timeline import text, words
from tidewheel.cli.timeline.reading import Reader, waits
from tidewheel.cli.timeline.text import because, clock, cut, duration, payload, plain
from tidewheel.journal import events as ev

#: Names of signals and promises that the line has room for.
NAMES_MAX: Final = 3


class RunProgress:
    """Takes a run's entries in order; ``line`` says how it stands, ``story`` what just happened."""

    def __init__(self, run_id: str = "") -> None:
        self._run = Reader(run_id=plain(run_id))
        self._seq = -1
        self._told: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the run has come to its end."""
        return self._run.state.ended

    def observe(self, entry: ev.Entry) -> None:
        """Take in *entry*, unless it was taken in before."""
        if entry.run_seq <= self._seq:
            return
        teller = _TELLERS.get(type(entry.event))
        self._told = None if teller is None else teller(self._run, entry, entry.event)
        self._run.take(entry)
        self._seq = entry.run_seq

    def story(self, entry: ev.Entry) -> str | None:
        """Return a sentence about *entry*, or None if it is not worth one or not the newest.

        An entry that was not observed yet is observed first.
        """
        self.observe(entry)
        return self._told if entry.run_seq == self._seq else None

    def line(self, now: dt.datetime, width: int | None = None) -> str:
        """Return how the run stands at *now*, cut to *width* columns if one is given."""
        run = self._run
        seconds = run.seconds(now)
        parts = [run.run_id or run.workflow, words.status(run), words.steps(run, now), *self._waits(now)]
        if run.state.ended and run.ending is not None:
            parts.append(words.ending(run.ending))
        if seconds is not None:
            parts.append(clock(seconds))
        said = "  ".join(part for part in parts if part)
        return said if width is None else cut(said, width)

    def _waits(self, now: dt.datetime) -> list[str]:
        """Return what the code is blocked on besides its steps."""
        waiting = self._run.state.waiting
        if waiting is None:
            return []
        lanes = [
            lane
            for lane in self._run.open.values()
            if not lane.is_step and (lane.path in waiting.waiting_on or waiting.truncated is True)
        ]
        named = [words.label(lane) for lane in lanes if lane.kind != "timer"]
        due = min((lane.due for lane in lanes if lane.due is not None), default=None)
        parts: list[str] = []
        if named:
            more = f" and {len(named) - NAMES_MAX:,} more" if len(named) > NAMES_MAX else ""
            parts.append(f"waits for {', '.join(named[:NAMES_MAX])}{more}")
        if due is not None:
            parts.append(f"timer {words.coming(due, now)}")
        return parts


def progress_line(entries: Iterable[ev.Entry], now: dt.datetime, run_id: str = "") -> str:
    """Return how the run whose journal is *entries* stands at *now*."""
    progress = RunProgress(run_id)
    for entry in entries:
        progress.observe(entry)
    return progress.line(now)


def _started(run: Reader, _: ev.Entry, event: ev.ExecutionStarted) -> str:
    name = text.name(event.workflow) or "the run"
    if run.segment:
        return f"{name} goes on in segment {run.segment + 1:,}"
    waits_for = {"now": "started", "queued": "waits to be admitted", "approval": "waits for approval"}
    return f"{name} {waits_for[event.admission]}"


def _ended(_: Reader, __: ev.Entry, event: ev.Event) -> str:
    return words.ending(event)


def _continued(_: Reader, __: ev.Entry, event: ev.ExecutionContinued) -> str:
    return f"continues as new with {payload(event.input)}"


def _cancelling(_: Reader, __: ev.Entry, event: ev.CancelRequested) -> str:
    return words.reasoned("cancel requested", event.reason)


def _attempted(run: Reader, _: ev.Entry, event: ev.InvokeStarted) -> str:
    return f"{_name(run, event.promise_id)} started (attempt {event.attempt})"


def _retrying(run: Reader, entry: ev.Entry, event: ev.InvokeRetrying) -> str:
    failed = f"{_name(run, event.promise_id)} failed: {because(event.error)}"
    if event.retry_at is None:
        return f"{failed}; parked until an operator decides"
    return failed if entry.at is None else f"{failed}; retry {words.coming(event.retry_at, entry.at)}"


def _completed(run: Reader, entry: ev.Entry, event: ev.InvokeCompleted) -> str:
    name, error = _name(run, event.promise_id), event.result.error
    if error is not UNSET:
        spent = f" ({event.attempt:,} attempts)" if event.attempt > 1 else ""
        return f"{name} failed: {because(error)}{spent}"
    lane = run.open.get(event.promise_id)
    seconds = None if lane is None or entry.at is None else lane.seconds(entry.at)
    after = f" after {duration(seconds)}" if seconds else ""
    return words.came_to(f"{name} completed{after}", event.result)


def _skipped(run: Reader, _: ev.Entry, event: ev.StepSkipped) -> str:
    return words.reasoned(f"{_name(run, event.promise_id)} was skipped", event.reason)


def _asked_again(run: Reader, _: ev.Entry, event: ev.StepRetryRequested) -> str:
    attempt = "" if event.logical_attempt is UNSET else f" (logical attempt {event.logical_attempt:,})"
    return f"{_name(run, event.promise_id)} is to be tried again{attempt}"


def _timer_set(_: Reader, __: ev.Entry, event: ev.TimerScheduled) -> str:
    return f"timer of {duration(event.duration)} set"


def _fired(run: Reader, _: ev.Entry, event: ev.TimerFired) -> str:
    return f"{_name(run, event.promise_id)} fired"


def _arrived(_: Reader, __: ev.Entry, event: ev.SignalDelivered) -> str:
    with_it = "" if event.payload is None else f": {payload(event.payload)}"
    return f"signal '{text.name(event.signal_name)}' arrived{with_it}"


def _refused(_: Reader, __: ev.Entry, event: ev.SignalRejected) -> str:
    return words.reasoned(f"signal '{text.name(event.signal_name)}' was refused", event.reason)


def _awaiting(run: Reader, _: ev.Entry, event: ev.ExecutionAwaiting) -> str | None:
    """Only a wait that begins is news: every suspension lists the open ones again."""
    fresh = [f"signal '{text.name(name)}'" for path, name in waits(event) if path not in run.open]
    return f"waits for {', '.join(fresh[:NAMES_MAX])}" if fresh else None


def _promised(_: Reader, __: ev.Entry, event: ev.PromiseCreated) -> str:
    return f"waits for promise '{text.name(event.name)}'"


def _resolved(run: Reader, _: ev.Entry, event: ev.PromiseResolved) -> str:
    name, error = _name(run, event.promise_id), event.result.error
    return (
        words.came_to(f"{name} resolved", event.result)
        if error is UNSET
        else f"{name} rejected: {because(error)}"
    )


def _recorded(_: Reader, __: ev.Entry, event: ev.Recorded) -> str:
    return f"recorded {text.name(event.name)}: {payload(event.data)}"


def _name(run: Reader, path: str) -> str:
    lane = run.open.get(path)
    return f"promise {path}" if lane is None else words.label(lane)


_TELLERS: Final[dict[type[ev.Event], Callable[[Reader, ev.Entry, Any], str | None]]] = {
    ev.ExecutionStarted: _started,
    ev.ExecutionCompleted: _ended,
    ev.ExecutionFailed: _ended,
    ev.ExecutionCancelled: _ended,
    ev.ExecutionContinued: _continued,
    ev.CancelRequested: _cancelling,
    ev.InvokeStarted: _attempted,
    ev.InvokeRetrying: _retrying,
    ev.InvokeCompleted: _completed,
    ev.StepSkipped: _skipped,
    ev.StepRetryRequested: _asked_again,
    ev.TimerScheduled: _timer_set,
    ev.TimerFired: _fired,
    ev.SignalDelivered: _arrived,
    ev.SignalRejected: _refused,
    ev.ExecutionAwaiting: _awaiting,
    ev.PromiseCreated: _promised,
    ev.PromiseResolved: _resolved,
    ev.RunAdmitted: lambda *_: "admitted",
    ev.RunApproved: lambda *_: "approved",
    ev.RunPaused: lambda *_: "paused",
    ev.RunResumed: lambda *_: "resumed",
    ev.Recorded: _recorded,
}
