"""Says so when user code blocks the process: nothing else in it can, since nothing else moves.

Workflow code and ``async`` tasks share one event loop. One that computes or sleeps without awaiting
stops all runs of its worker, and its lease with them.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from pathlib import Path
from types import FrameType

import tidewheel

logger = logging.getLogger("tidewheel.process")

#: The loop says several times in this span that it moves; after it without a word it is blocked.
BLOCKED_AFTER_S = 2.0

_OURS = str(Path(tidewheel.__file__).resolve().parent.parent.parent)
_LIBRARY = str(Path(asyncio.__file__).resolve().parent.parent)


class Watchdog:
    """A role: a thread beside the event loop of the thread that starts it."""

    def __init__(self, blocked_after_s: float = BLOCKED_AFTER_S) -> None:
        self._blocked_after_s = blocked_after_s
        self._beat_s = blocked_after_s / 8
        self._watched = threading.get_ident()
        self._has_moved = threading.Event()
        self._stopped = threading.Event()
        self._beating: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None

    async def start(self) -> None:
        """Begin to watch."""
        self._watched = threading.get_ident()
        self._beating = asyncio.create_task(self._beat())
        self._thread = threading.Thread(target=self._watch, name="tidewheel-watchdog", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Watch no more. May be called twice."""
        self._stopped.set()
        if self._beating is not None:
            self._beating.cancel()

    async def _beat(self) -> None:
        while True:
            self._has_moved.set()
            await asyncio.sleep(self._beat_s)

    def _watch(self) -> None:
        is_blocked = False
        while not self._stopped.is_set():
            self._has_moved.clear()
            if self._has_moved.wait(self._blocked_after_s):
                if is_blocked:
                    logger.warning("the event loop moves again")
                is_blocked = False
                self._stopped.wait(self._beat_s)
            elif not is_blocked and not self._stopped.is_set():
                is_blocked = True
                logger.error(
                    "nothing has moved for %.1f s: code blocks the event loop, and with it all runs of this "
                    "process, %s. Await something, or make it a plain function in a task",
                    self._blocked_after_s,
                    where(sys._current_frames().get(self._watched)),  # noqa: SLF001 - documented, for debuggers
                )


def where(frame: FrameType | None) -> str:
    """Say where the innermost frame of user code is; of ours, where there is none."""
    innermost = frame
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith((_OURS + "/workers", _OURS + "/replay", _OURS + "/src", _LIBRARY, "<frozen")):
            innermost = frame
            break
        frame = frame.f_back
    if innermost is None:
        return "in a place that cannot be seen"
    return f"at {innermost.f_code.co_filename}:{innermost.f_lineno} in {innermost.f_code.co_name}"
