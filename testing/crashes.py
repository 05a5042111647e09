"""Crash a scenario after every event it writes, and see that nothing changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tidewheel.sdk.app import App
from tidewheel.testing.environment import Environment

#: More crash points than this are a scenario to make smaller.
CRASHES_MAX = 10_000


async def crash_everywhere(
    app: App, scenario: Callable[[Environment], Awaitable[Any]], *, seed: int = 0
) -> int:
    """Run *scenario* once undisturbed, then once with a crash after each event it writes.

    Every time it must return the same. Returns how many crashes were tried.
    """
    async with Environment(app, seed=seed) as env:
        expected = await scenario(env)
        events = env.engine.events_written
    assert events <= CRASHES_MAX, (
        f"{events} events are too many to crash after each: make the scenario smaller"
    )
    for crash_after in range(1, events + 1):
        async with Environment(app, seed=seed) as env:
            env.crash_after(crash_after)
            result = await scenario(env)
            assert result == expected, (
                f"crashed after event {crash_after}: got {result!r}, expected {expected!r}"
            )
    return events
