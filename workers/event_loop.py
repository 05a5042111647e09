"""The event loop that the processes of the command line run on: uvloop's, where it is there and wanted.

Only a process that is ours chooses: a client belongs to a program whose loop is its own affair.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tidewheel.workers.config import EventLoopConfig

T = TypeVar("T")


def loop_factory(config: EventLoopConfig) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the loop, for ``asyncio.Runner``; None where it is asyncio's own."""
    if not config.uvloop:
        return None
    try:
        import uvloop  # noqa: PLC0415 - not there on Windows and PyPy, and not needed where it is not wanted
    except ImportError:
        return None
    return uvloop.new_event_loop


def tend_garbage(config: EventLoopConfig) -> None:
    """Look for garbage less often than Python does by itself, and never among what was imported.

    Hardly anything here refers to itself, and runs that do are untied when they are let go; every look goes
    through all that is under way, which was a tenth of a busy worker's time.
    """
    if config.gc_threshold:
        gc.collect()
        gc.freeze()
        gc.set_threshold(config.gc_threshold, 20, 20)


def run(work: Coroutine[Any, Any, T], config: EventLoopConfig) -> T:
    """Do *work* as ``asyncio.run`` does, on the loop that *config* wants."""
    tend_garbage(config)
    with asyncio.Runner(loop_factory=loop_factory(config)) as runner:
        return runner.run(work)
