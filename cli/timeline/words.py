"""How a run and its lanes stand, in words that the timeline and the live line share."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Final

from msgspec import UNSET

from tidewheel.cli.timeline.reading import STEPS, Kind, Lane, Reader
from tidewheel.cli.timeline.text import MESSAGE_COLUMNS_MAX, because, counted, cut, duration, payload, plain
from tidewheel.journal import events as ev

#: The states of steps in the order they are counted, and the word for each.
COUNTED: Final[dict[str, str]] = {
    "done": "done",
    "failed": "failed",
    "skipped": "skipped",
    "abandoned": "abandoned",
    "running": "running",
    "queued": "queued",
    "backoff": "waiting",
    "parked": "parked",
}
#: What a lane that came to its end is said to be.
DONE: Final[dict[Kind, str]] = {
    "step": "done",
    "child": "done",
    "timer": "fired",
    "signal": "received",
    "promise": "resolved",
}


def status(run: Reader) -> str:
    """Return the contract's word for where the run stands, and whether it is being cancelled."""
    word = run.state.public_status
    return f"{word} (cancelling)" if run.state.cancelling else word


def steps(run: Reader, now: dt.datetime | None) -> str:
    """Return how many steps stand how: ``12 steps done, 2 running, 1 waiting (retry in 3.2 s)``."""
    tally: Counter[str] = Counter()
    for (kind, state), number in run.tally().items():
        tally[state] += number if kind in STEPS else 0
    due = min((lane.due for lane in run.open.values() if lane.state == "backoff" and lane.due), default=None)
    parts: list[str] = []
    for state, word in COUNTED.items():
        if tally[state]:
            many = f"{tally[state]:,}" if parts else counted(tally[state], "step")
            retry = f" (retry {coming(due, now)})" if state == "backoff" and due and now else ""
            parts.append(f"{many} {word}{retry}")
    if not parts:
        return "no steps" if run.state.ended else "no steps yet"
    return ", ".join(parts)


def others(run: Reader) -> str:
    """Return how many timers, signals and promises there are: ``2 timers, 1 signal``."""
    tally: Counter[Kind] = Counter()
    for (kind, _), number in run.tally().items():
        tally[kind] += number
    kinds: tuple[Kind, ...] = ("timer", "signal", "promise")
    return ", ".join(counted(tally[kind], kind) for kind in kinds if tally[kind])


def standing(lane: Lane, now: dt.datetime | None) -> str:
    """Return how *lane* stands or what it came to: ``failed, 3 attempts: Timeout``."""
    match lane.state:
        case "done":
            said = DONE[lane.kind]
        case "failed" if lane.kind == "promise":
            said = "rejected"
        case "backoff":
            said = f"retry {coming(lane.due, now)}" if lane.due and now else "waiting to retry"
        case "waiting" if lane.due and now:
            said = f"fires {coming(lane.due, now)}"
        case _:
            said = lane.state
    if lane.attempts > 1:
        said += f", {lane.attempts:,} attempts"
    if lane.error is not None and lane.state in ("failed", "parked"):
        said += f": {plain(lane.error.type)}"
    return said


def label(lane: Lane) -> str:
    """Return what *lane* is called."""
    match lane.kind:
        case "signal" | "promise":
            return f"{lane.kind} '{lane.name}'"
        case "child":
            return f"{lane.name} (child)"
        case _:
            return lane.name


def coming(due: dt.datetime, now: dt.datetime) -> str:
    """Return how far away *due* is: ``in 3.2 s``, or ``due``."""
    return f"in {duration((due - now).total_seconds())}" if due > now else "due"


def ending(event: ev.Event) -> str:
    """Return how a run ended, and with what."""
    match event:
        case ev.ExecutionCompleted(result=result):
            return came_to("completed", result)
        case ev.ExecutionFailed(error=error):
            return f"failed: {because(error)}"
        case ev.ExecutionCancelled(reason=reason):
            return reasoned("cancelled", reason)
        case _:
            return "ended"


def came_to(said: str, result: ev.Result) -> str:
    """Return *said* and what the result holds, where that is more than nothing."""
    if result.error is not UNSET:
        return f"{said} with {because(result.error)}"
    return said if result.ok is None else f"{said}: {payload(result.ok)}"


def reasoned(said: str, reason: str | None) -> str:
    """Return *said*, and why, where a reason was given."""
    return f"{said}: {cut(plain(reason), MESSAGE_COLUMNS_MAX)}" if reason else said
