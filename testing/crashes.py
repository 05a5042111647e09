"""Crash a scenario at every point, and see that nothing changes."""

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
    """Run *scenario* undisturbed, then again and again with one crash at each point.

    The points are: after each event that is written, and after each execution of a step,
    before its result is kept. Every time the scenario must return the same. Steps may be
    executed twice, as they may be in production. Returns how many crashes were tried.
    """
    async with Environment(app, seed=seed) as env:
        expected = await scenario(env)
        events, attempts = env.engine.events_written, env.engine.attempts_executed
    points = events + attempts
    assert points <= CRASHES_MAX, f"{points} crash points are too many: make the scenario smaller"
    for place in range(1, points + 1):
        async with Environment(app, seed=seed) as env:
            if place <= events:
                where = f"after event {place}"
                env.crash_after(place)
            else:
                where = f"after executing attempt {place - events}"
                env.crash_after_attempt(place - events)
            result = await scenario(env)
            assert result == expected, f"crashed {where}: got {result!r}, expected {expected!r}"
    return points
