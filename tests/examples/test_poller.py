"""The poller: it follows its source for ever, and nothing it is told or has read gets lost."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from examples import poller
from examples.poller import Progress, app, backed_off, follow
from tests.examples.embedded import RESULT_WITHIN, embedded, until_it_waits
from tidewheel import Handle
from tidewheel.journal.events import Entry, ExecutionContinued
from tidewheel.testing import Environment, crash_everywhere


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    """The file that is followed, with two lines in it and a third that is not finished."""
    path = tmp_path / "inbox.txt"
    path.write_bytes(b"one\ntwo\nthr")
    return path


def finish_line(inbox: Path) -> None:
    """Write the rest of the third line."""
    with inbox.open("ab") as file:
        file.write(b"ee\n")


def remove(inbox: Path) -> None:
    """Take the file away."""
    inbox.unlink()


def bring_back(inbox: Path) -> None:
    """Put a file with one line in its place."""
    inbox.write_bytes(b"back\n")


def segments(journal: list[Entry]) -> int:
    """How often the run has begun anew."""
    return 1 + sum(isinstance(entry.event, ExecutionContinued) for entry in journal)


async def until_it_has_read(run: Handle[Any], *, lines: int) -> None:
    """Return when *run* has handled so many lines, and has continued as new at least twice."""
    async with asyncio.timeout(RESULT_WITHIN):
        while not await has_read(run, lines):  # noqa: ASYNC110 - a file has no event to wait for
            await asyncio.sleep(0.05)


async def has_read(run: Handle[Any], lines: int) -> bool:
    """Tell whether *run* has come so far."""
    return (await run.state()).get("lines", 0) >= lines and segments(await run.journal()) >= 3


async def test_lines_are_handled_once_they_are_finished(inbox: Path) -> None:
    """Half a line is left alone until the rest of it is there."""
    async with Environment(app) as env:
        run = await env.client.start(follow, str(inbox))
        await env.sleep(150)
        before = (await run.state())["lines"]
        finish_line(inbox)
        await env.sleep(60)
        await run.signal("stop")

        progress = await run.result()

    assert before == 2
    assert progress == Progress(polls=4, lines=3, skipped=0)


async def test_progress_goes_along_when_the_run_continues_as_new(inbox: Path) -> None:
    """After days of polling the counts are whole, and no line was handled twice."""
    async with Environment(app) as env:
        run = await env.client.start(follow, str(inbox))
        env.after(timedelta(hours=5), run.signal, "stop")

        progress = await run.result()

        assert progress == Progress(polls=300, lines=2, skipped=0)
        assert segments(await run.journal()) == 3


async def test_a_changed_interval_goes_along_too(inbox: Path) -> None:
    """From an hour to a second: what the signal said still holds two segments later."""
    async with Environment(app) as env:
        run = await env.client.start(follow, str(inbox), 3600.0)
        await env.sleep(60)
        await run.signal("interval", 1)
        await env.sleep(250)
        await run.signal("stop")

        progress = await run.result()

        assert progress.polls == 252
        assert segments(await run.journal()) == 3


async def test_no_signal_is_lost_while_the_run_continues_as_new(
    inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if every poll continues as new, each interval is heard, in order, before the stop."""
    monkeypatch.setattr(poller, "POLLS_PER_SEGMENT", 1)
    async with Environment(app) as env:
        env.fake(poller.poll, takes=1)
        run = await env.client.start(follow, str(inbox), 60.0)
        for seconds in (50, 40, 30, 20, 10):
            await run.signal("interval", seconds)
        await env.sleep(30)
        polls_while_changing = (await run.state())["polls"]
        await env.sleep(220)
        await run.signal("stop")

        progress = await run.result()

    assert polls_while_changing >= 6
    assert progress.polls == polls_while_changing + 20


async def test_an_interval_is_kept_within_bounds(inbox: Path) -> None:
    """Neither nothing nor a lifetime between two polls."""
    async with Environment(app) as env:
        run = await env.client.start(follow, str(inbox))
        await run.signal("interval", 1e300)
        await run.signal("interval", -1)
        env.after(10, run.signal, "stop")

        progress = await run.result()

    assert 150 < progress.polls < 250


@pytest.mark.parametrize("nonsense", ["fast", None, {"seconds": 5}])
async def test_an_interval_that_makes_no_sense_changes_nothing(inbox: Path, nonsense: object) -> None:
    """A mistyped command does not end what runs for years."""
    async with Environment(app) as env:
        run = await env.client.start(follow, str(inbox))
        await run.signal("interval", nonsense)
        await env.sleep(600)
        await run.signal("stop")

        progress = await run.result()

    assert progress.polls == 12


async def test_a_source_that_is_away_is_polled_less_and_less(inbox: Path) -> None:
    """Each failure in a row doubles the pause; one success brings the interval back."""
    remove(inbox)
    async with Environment(app) as env:
        run = await env.client.start(follow, str(inbox))
        await env.sleep(60 * (2 + 4 + 8) + 30)
        away = await run.state()
        bring_back(inbox)
        await env.sleep(60 * 16)
        back = await run.state()

    assert away == {"polls": 4, "failures": 4}
    assert (back["polls"], back["lines"]) == (5, 1)
    assert "failures" not in back


def test_the_pause_is_bounded_however_often_a_poll_failed() -> None:
    """After years of failures it is still an hour, or the interval where that is longer."""
    assert backed_off(60.0, failures=0) == 60.0
    assert backed_off(60.0, failures=100_000) == 3600.0
    assert backed_off(7200.0, failures=3) == 7200.0


async def test_a_line_that_cannot_be_handled_is_skipped(inbox: Path) -> None:
    """One bad line does not hold up those behind it."""

    def handle(line: str) -> int:
        if line == "one":
            raise ValueError(line)
        return len(line)

    async with Environment(app) as env:
        env.fake(poller.handle_line, handle)
        run = await env.client.start(follow, str(inbox))
        env.after(90, run.signal, "stop")

        progress = await run.result()

    assert (progress.lines, progress.skipped) == (1, 1)


async def test_the_poller_survives_a_crash_at_any_point(inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while it continues as new, with signals on their way."""
    monkeypatch.setattr(poller, "POLLS_PER_SEGMENT", 2)

    async def scenario(env: Environment) -> Progress:
        run = await env.client.start(follow, str(inbox))
        env.after(90, run.signal, "interval", 10)
        env.after(125, run.signal, "stop")
        return await run.result()

    assert await crash_everywhere(app, scenario) > 40


async def test_a_poller_is_talked_to_on_the_embedded_default(
    inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is restarted, told to hurry, continues as new many times, reads on, and stops when told."""
    monkeypatch.setattr(poller, "POLLS_PER_SEGMENT", 3)
    async with embedded(app, tmp_path) as client:
        run = await client.start(follow, str(inbox), 3600.0, run_id="inbox")
        await until_it_waits(run, "stop")

    async with embedded(app, tmp_path) as client:
        again = client.handle("inbox")
        await again.signal("interval", 0.05)
        finish_line(inbox)
        await until_it_has_read(again, lines=3)
        await again.signal("stop")
        progress = await again.result(timeout=RESULT_WITHIN)

    assert (progress["lines"], progress["skipped"]) == (3, 0)
