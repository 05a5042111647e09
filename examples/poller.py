"""A poller without end: it follows a file as it grows, for years, and never has much to replay.

Shows continue-as-new, progress in ``ctx.state``, backing off from what fails, and commands by signal,
none of which is lost when the run continues as new. Try it, in two terminals::

    tidewheel dev examples/poller.py:app

    tidewheel run start follow --run-id inbox --input '["inbox.txt", 5]'
    echo "hello" >> inbox.txt
    tidewheel run signal inbox interval --payload 1       # look more often
    tidewheel run show inbox
    tidewheel run signal inbox stop
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from tidewheel import App, Context, DurablePromise, InvalidRequest, Retry, StepFailed

app = App("poller")

POLLS_PER_SEGMENT = 100
#: In seconds.
INTERVAL_MIN, INTERVAL_MAX, PAUSE_MAX = 0.05, 7 * 86400.0, 3600.0
LINES_MAX = 100


@dataclass(frozen=True)
class Page:
    """What was new, and where to read on."""

    lines: tuple[str, ...]
    offset: int


@dataclass(frozen=True)
class Progress:
    """How far the poller has come since it was first started."""

    polls: int
    lines: int
    skipped: int


# A poll that fails is polled again later anyway, so one attempt is enough.
@app.task(retry=Retry(max_attempts=1), timeout=30)
def poll(source: str, offset: int) -> Page:
    """Return the lines of a file from *offset* on; a queue, a feed or an API would go here."""
    lines: list[str] = []
    with Path(source).open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n") or len(lines) == LINES_MAX:
                break  # still being written, or enough for now
            lines.append(line.decode("utf-8", "replace").strip())
            offset += len(line)
    return Page(tuple(lines), offset)


@app.task
def handle_line(line: str) -> int:
    """Do something with a line."""
    return len(line)


@app.workflow
async def follow(ctx: Context, source: str, interval: float = 60.0) -> Progress:
    """Poll *source* until told to stop, every *interval* seconds or as the signal says."""
    # Asked for once: a signal that comes while something else is awaited is here when it is looked for.
    stop, change = ctx.signal("stop"), ctx.signal("interval", into=float)
    for _ in range(POLLS_PER_SEGMENT):
        await poll_once(ctx, source)
        pause = backed_off(interval, failures=ctx.state.get("failures", 0))
        await asyncio.wait([stop, change], timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        if stop.done():
            counts = (ctx.state.get(name, 0) for name in ("polls", "lines", "skipped"))
            return Progress(*counts)
        if change.done():
            interval = changed(interval, change)
            change = ctx.signal("interval", into=float)
    # State goes along by itself, and so does every signal that was not taken yet.
    return ctx.continue_as_new(source, interval)


async def poll_once(ctx: Context, source: str) -> None:
    """Read what is new and handle it; remember how far that came."""
    count(ctx, "polls", 1)
    try:
        page = await ctx.invoke(poll, source, ctx.state.get("offset", 0))
    except StepFailed:
        count(ctx, "failures", 1)  # in a row
        return
    ctx.state.pop("failures", None)
    if page.lines:
        steps = [ctx.start(handle_line, line) for line in page.lines]
        outcomes = await asyncio.gather(*steps, return_exceptions=True)
        skipped = sum(isinstance(outcome, StepFailed) for outcome in outcomes)
        count(ctx, "skipped", skipped)
        count(ctx, "lines", len(page.lines) - skipped)
        ctx.state["offset"] = page.offset


def count(ctx: Context, what: str, by: int) -> None:
    """Add to a number that the run remembers."""
    ctx.state[what] = ctx.state.get(what, 0) + by


def backed_off(interval: float, *, failures: int) -> float:
    """Return the pause before the next poll: it doubles with each failure, up to a bound."""
    doublings = min(failures, 20)
    return min(interval * 2.0**doublings, max(interval, PAUSE_MAX))


def changed(interval: float, change: DurablePromise[float]) -> float:
    """Return the interval that a signal asks for, or the old one where that makes no sense."""
    try:
        return min(max(change.result(), INTERVAL_MIN), INTERVAL_MAX)
    except InvalidRequest:
        return interval
