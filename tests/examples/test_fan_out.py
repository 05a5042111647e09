"""The fan-out: every item is done or accounted for, and never too many at once."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from examples import fan_out
from examples.fan_out import AT_ONCE_MAX, Summary, app, check_links
from tests.examples.embedded import RESULT_WITHIN, embedded, steps_of
from tidewheel.journal.events import Entry, InvokeCompleted, InvokeScheduled
from tidewheel.testing import Environment, crash_everywhere

DEAD = [99, 199, 299, 399, 499, 599, 699, 799, 899, 999]


def most_at_once(journal: list[Entry]) -> int:
    """The most steps that were open at the same time."""
    changes: list[int] = [
        1 if isinstance(entry.event, InvokeScheduled) else -1
        for entry in journal
        if isinstance(entry.event, InvokeScheduled | InvokeCompleted)
    ]
    return max(itertools.accumulate(changes))


def assert_all_accounted_for(summary: Summary) -> None:
    """Of a thousand links ten are dead, and the others were read in full."""
    assert [failure.link for failure in summary.failures] == DEAD
    assert summary.failures[0].why == "link 99 leads nowhere"
    assert summary.checked == 990
    assert summary.bytes_read == sum(1_000 + link for link in range(1_000) if link not in DEAD)


async def test_a_thousand_links_are_checked_and_the_dead_ones_listed() -> None:
    """One failure does not end the others, and each is in the summary."""
    async with Environment(app) as env:
        run = await env.client.start(check_links, 1_000)

        summary = await run.result()

        assert_all_accounted_for(summary)
        assert (await run.state())["done"] == 1_000


async def test_no_more_than_fifty_links_are_checked_at_once() -> None:
    """The bound holds for every moment of the run, and is reached."""
    async with Environment(app) as env:
        env.fake(fan_out.check_link, returns=1, takes=5)
        run = await env.client.start(check_links, 200)

        await run.result()

        assert most_at_once(await run.journal()) == AT_ONCE_MAX


async def test_links_that_are_done_stay_done_after_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash at any point gives the same summary, in whatever order the links come."""
    monkeypatch.setattr(fan_out, "AT_ONCE_MAX", 4)
    monkeypatch.setattr(fan_out, "DEAD_EVERY", 5)
    monkeypatch.setattr(fan_out, "SLOW_EVERY", 3)

    async def scenario(env: Environment) -> Summary:
        run = await env.client.start(check_links, 12)
        return await run.result()

    assert await crash_everywhere(app, scenario) > 40


async def test_a_thousand_links_are_checked_on_the_embedded_default(tmp_path: Path) -> None:
    """With real retries and real parallelism the summary is the same, and the bound holds."""
    async with embedded(app, tmp_path) as client:
        run = await client.start(check_links, 1_000)

        summary = await run.result(timeout=RESULT_WITHIN)
        journal = await run.journal()

    assert_all_accounted_for(summary)
    assert len(steps_of(journal)) == 1_000
    assert most_at_once(journal) <= AT_ONCE_MAX


async def test_a_fan_out_goes_on_after_a_restart(tmp_path: Path) -> None:
    """What the journal has is not asked for again by the next worker."""
    async with embedded(app, tmp_path) as client:
        run = await client.start(check_links, 1_000, run_id="links")
        while len(early := await run.journal()) < 200:
            assert await run.status() == "RUNNING"

    async with embedded(app, tmp_path) as client:
        again = await client.start(check_links, 1_000, run_id="links")
        summary = await again.result(timeout=RESULT_WITHIN)
        journal = await again.journal()

    assert_all_accounted_for(summary)
    assert journal[: len(early)] == early
    assert len(steps_of(journal)) == 1_000
