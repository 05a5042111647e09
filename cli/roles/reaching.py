"""Waiting for a store and a broker that cannot be reached yet.

A process may be started before its servers are: it says what it waits for and tries again, for a
bounded time. What no waiting mends, such as a file that is no database, is told at once.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Coroutine
from typing import Any, Final, Literal, TypeVar

from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.store.errors import StoreUnavailable
from tidewheel.workers.health import Health

logger = logging.getLogger("tidewheel.process")

PAUSE_FIRST_S: Final = 0.25
PAUSE_MAX_S: Final = 5.0
#: An attempt that takes longer is given up, unless there is more time left.
ATTEMPT_MIN_S: Final = 10.0
#: What of SQLite's errors may pass by itself. A folder that is not there will not come.
_PASSING: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
    }
)
_PRIMARY: Final = 0xFF

T = TypeVar("T")


class ToldToStop(Exception):
    """Somebody told the process to stop before it had begun."""


class Patience:
    """How long a process that starts goes on trying; *told* ends it at any time."""

    def __init__(self, timeout_s: float, told: asyncio.Future[None], health: Health) -> None:
        self._timeout_s = timeout_s
        self._deadline = asyncio.get_running_loop().time() + timeout_s
        self._told = told
        self._health = health

    async def reach(
        self, what: Literal["store", "broker"], attempt: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """Return what *attempt* gives, once it gives anything."""
        pause_s = PAUSE_FIRST_S
        while True:
            try:
                return await self._unless_told(what, attempt())
            except (StoreUnavailable, BrokerUnavailable) as problem:
                left_s = self._left_s()
                if left_s <= 0 or not _may_pass(problem):
                    raise
                self._health.waits_for = f"the {what}: {problem}"
                logger.warning("waits for the %s, for up to %.0f s more: %s", what, left_s, problem)
            await self._pause(min(pause_s, left_s))
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _left_s(self) -> float:
        return self._deadline - asyncio.get_running_loop().time()

    async def _unless_told(self, what: str, attempt: Coroutine[Any, Any, T]) -> T:
        trying: asyncio.Task[T] = asyncio.ensure_future(attempt)
        either: list[asyncio.Future[Any]] = [trying, self._told]
        bound_s = max(self._left_s(), ATTEMPT_MIN_S)
        try:
            await asyncio.wait(either, timeout=bound_s, return_when=asyncio.FIRST_COMPLETED)
            if trying.done():
                return trying.result()
        finally:
            trying.cancel()
            await asyncio.gather(trying, return_exceptions=True)
        if self._told.done():
            raise ToldToStop
        unavailable = StoreUnavailable if what == "store" else BrokerUnavailable
        raise unavailable(f"the {what} did not answer within {bound_s:.0f} s")

    async def _pause(self, pause_s: float) -> None:
        await asyncio.wait([self._told], timeout=pause_s)
        if self._told.done():
            raise ToldToStop


def _may_pass(problem: BaseException) -> bool:
    cause = problem.__cause__
    if not isinstance(cause, sqlite3.Error):
        return True
    return getattr(cause, "sqlite_errorcode", 0) & _PRIMARY in _PASSING
