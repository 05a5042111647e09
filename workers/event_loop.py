"""The event loop that the processes of the command line run on: uvloop's, where it is there and wanted.

Only a process that is ours chooses: a client belongs to a program whose loop is its own affair.
"""

from __future__ import annotations

import asyncio
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


def run(work: Coroutine[Any, Any, T], config: EventLoopConfig) -> T:
    """Do *work* as ``asyncio.run`` does, on the loop that *config* wants."""
    with asyncio.Runner(loop_factory=loop_factory(config)) as runner:
        return runner.run(work)
