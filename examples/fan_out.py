"""A thousand items, fifty at a time, and a summary that knows which of them failed.

Shows fan-out and fan-in in one run, with a bound on what is done at once, retries per item, and
failures that are collected instead of ending everything. Plain asyncio does it: a semaphore and
``gather`` are as durable as the steps they wait for. Try it, in two terminals::

    tidewheel dev examples/fan_out.py:app

    tidewheel run start check_links --run-id links --input '[1000]' --wait
    tidewheel run show links

Kill the first terminal while it works and start it again: items that are done stay done. For a
hundred thousand items start a child run per thousand (``ctx.invoke(check_links, ...)``), so that no
journal grows without bound.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tidewheel import App, Context, Retry, StepFailed, current_task

app = App("fan-out")

AT_ONCE_MAX = 50
PROGRESS_EVERY = 100
#: Every so many links one is dead, and one answers only when asked again.
DEAD_EVERY, SLOW_EVERY = 100, 40


class DeadLink(Exception):
    """The page is gone; asking again does not help."""


@dataclass(frozen=True)
class Failure:
    """A link that could not be checked, and why."""

    link: int
    why: str


@dataclass(frozen=True)
class Summary:
    """What came of all links: how many bytes were read, and what failed."""

    checked: int
    bytes_read: int
    failures: tuple[Failure, ...]


@app.task(retry=Retry(max_attempts=3, initial=0.2, non_retryable=[DeadLink]), timeout=30)
async def check_link(link: int) -> int:
    """Fetch a page and return its size; an HTTP client would go here."""
    if link % DEAD_EVERY == DEAD_EVERY - 1:
        message = f"link {link} leads nowhere"
        raise DeadLink(message)
    if link % SLOW_EVERY == SLOW_EVERY - 1 and current_task().attempt == 1:
        message = f"link {link} did not answer"
        raise ConnectionError(message)
    return 1_000 + link


@app.workflow
async def check_links(ctx: Context, count: int) -> Summary:
    """Check *count* links, ``AT_ONCE_MAX`` at a time, and sum up."""
    places = asyncio.Semaphore(AT_ONCE_MAX)
    sizes: list[int] = []
    failures: list[Failure] = []

    async def check(link: int) -> None:
        async with places:
            try:
                sizes.append(await ctx.invoke(check_link, link))
            except StepFailed as problem:
                failures.append(Failure(link, problem.message))
        done = len(sizes) + len(failures)
        if done % PROGRESS_EVERY == 0:
            ctx.state["done"] = done  # what `await handle.state()` tells meanwhile

    await asyncio.gather(*(check(link) for link in range(count)))
    failures.sort(key=lambda failure: failure.link)
    return Summary(checked=len(sizes), bytes_read=sum(sizes), failures=tuple(failures))
