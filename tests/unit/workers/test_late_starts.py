"""The watch for steps that go on for long: one timer, and each is told of when its own time has come."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tidewheel.workers.late_starts import LateStarts


@dataclass
class Step:
    """A step that was begun."""

    is_over: bool = False


async def test_only_those_that_still_go_on_are_told_of_each_at_its_time() -> None:
    """Also where the first that was watched has ended."""
    starts, told = LateStarts(0.05), list[tuple[str, float]]()
    loop = asyncio.get_running_loop()
    began = loop.time()
    steps = {name: Step() for name in ("ends", "lasts", "later")}

    def tell(path: str, _step: Step) -> None:
        told.append((path, loop.time() - began))

    starts.watch(tell, "ends", steps["ends"])
    starts.watch(tell, "lasts", steps["lasts"])
    await asyncio.sleep(0.02)
    steps["ends"].is_over = True
    starts.watch(tell, "later", steps["later"])
    await asyncio.sleep(0.2)

    assert [path for path, _ in told] == ["lasts", "later"]
    assert told[0][1] >= 0.045
    assert told[1][1] >= 0.065


async def test_what_has_ended_is_not_kept_until_its_time_comes() -> None:
    """A worker executes thousands in a second, and each would keep its run in memory."""
    starts = LateStarts(60.0)
    for _ in range(1000):
        step = Step()
        starts.watch(lambda _path, _step: None, "0", step)
        step.is_over = True

    assert len(starts._begun) == 1
