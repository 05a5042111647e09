"""The end of a run's code: as in ``asyncio.run``, what the main coroutine left is told to end.

Branches see the cancellation once and may clean up durably; async generators that were
left open are closed after that, oldest first.
"""

from __future__ import annotations

import asyncio
import contextvars

from tidewheel.replay.loop import DeterministicLoop, WorkflowTask


class WindingUp:
    """Ends what is left once the main coroutine has ended."""

    def __init__(self, loop: DeterministicLoop) -> None:
        self._loop = loop
        self._closing: asyncio.Task[None] | None = None
        self._branches: list[WorkflowTask] = []

    def move(self) -> None:
        """Tell what is left to end, and let it move."""
        if self._closing is None:
            self._branches = self._loop.open_tasks()
            if not self._branches and not self._loop.has_open_generators():
                return
            self._cancel_branches()
            self._closing = self._loop.create_task(
                self._loop.shutdown_asyncgens(), name="wind-up", context=contextvars.Context()
            )
            self._loop.run_until_idle()
        while self._cancel_branches():
            self._loop.run_until_idle()

    def forget(self) -> None:
        """Let go of everything."""
        self._closing = None
        self._branches.clear()

    def _cancel_branches(self) -> bool:
        # A branch that was cancelled before is cleaning up: it is told again only if it goes on after that.
        told = [branch for branch in self._branches if branch.cancelling()]
        others = [branch for branch in self._branches if not branch.cancelling()]
        self._branches = [branch for branch in told if not branch.done()]
        for branch in others:
            branch.cancel()
        return bool(others)
