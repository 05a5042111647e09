"""Steps that last a while are journaled as started, for people to see; most have ended long before.

All of a worker's wait equally long, so they come up in the order in which they began, and one timer, for the
oldest that goes on, does for all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar


class Begun(Protocol):
    """A step that was begun."""

    #: Whether it has ended, or was given up.
    is_over: bool


B = TypeVar("B", bound=Begun)


class LateStarts:
    """The steps of a worker that began less than *after_s* ago, and some that have ended since."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._begun: deque[tuple[float, Callable[[str, Any], None], str, Begun]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, tell: Callable[[str, B], None], path: str, begun: B) -> None:
        """Call *tell* with the last two when the step has lasted long enough, if it still goes on."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        due = loop.time() + self._after_s
        while self._begun and self._begun[0][3].is_over:
            self._begun.popleft()  # what ended in time is not kept until its time comes
        self._begun.append((due, tell, path, begun))
        if self._timer is None:
            self._timer = loop.call_at(due, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._timer is not None
        # The loop may call a moment early: what this was armed for is due.
        now = max(loop.time(), self._timer.when())
        self._timer = None
        while self._begun:
            due, tell, path, begun = self._begun[0]
            if not begun.is_over:
                if due > now:
                    self._timer = loop.call_at(due, self._look, loop)
                    return
                tell(path, begun)
            self._begun.popleft()
