"""The watchdog: what blocks the process is named."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time

import pytest

from tidewheel.workers.watchdog import Watchdog, where


def test_the_place_is_where_the_code_stands() -> None:
    """File, line and function, as a traceback would have them."""
    said = where(inspect.currentframe())

    assert "test_watchdog.py" in said
    assert said.endswith("in test_the_place_is_where_the_code_stands")


def test_without_a_frame_it_says_so() -> None:
    """A thread may have ended meanwhile."""
    said = where(None)

    assert said == "in a place that cannot be seen"


def test_a_blocked_loop_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """And again only after it has moved."""

    async def block() -> None:
        watchdog = Watchdog(blocked_after_s=0.1)
        await watchdog.start()
        await asyncio.sleep(0.05)
        time.sleep(0.6)  # noqa: ASYNC251 - that is the point
        await asyncio.sleep(0.6)
        await watchdog.stop()
        await watchdog.stop()

    with caplog.at_level(logging.WARNING, logger="tidewheel.process"):
        asyncio.run(block())

    said = [record.getMessage() for record in caplog.records]
    assert len([line for line in said if "blocks the event loop" in line]) == 1
    assert said[-1] == "the event loop moves again"
    assert "in block" in said[0]
