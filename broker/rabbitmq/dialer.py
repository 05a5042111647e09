"""Keeps one connection: opens it when it is needed, and again after it was lost, but not in a rush.

Whoever needs the connection joins the attempt that is under way, or the next one. After a failure the next
attempt comes later, up to a bound, and by chance a bit sooner or later: a fleet must not come back as one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.rabbitmq.connection import Connection

#: The pause before an attempt doubles with each failure, from the first to the longest.
PAUSE_FIRST_S: Final = 0.05
PAUSE_MAX_S: Final = 1.0
#: A connection that was lost sooner than this counts as a failed attempt.
STEADY_S: Final = 1.0

_log = logging.getLogger("tidewheel.broker")

_T = TypeVar("_T")


class Dialer(Generic[_T]):
    """Keeps one connection and what was made of it; *dial* opens it, *make* completes it."""

    def __init__(
        self,
        dial: Callable[[], Awaitable[Connection]],
        make: Callable[[Connection], Awaitable[_T]],
        is_usable: Callable[[_T], bool],
    ) -> None:
        self._dial = dial
        self._make = make
        self._is_usable = is_usable
        self._connection: Connection | None = None
        self._made: _T | None = None
        self._made_at_s = 0.0
        self._attempt: asyncio.Task[_T] | None = None
        self._failures = 0
        #: How often a connection was opened.
        self.opened = 0

    async def get(self) -> _T:
        """Return what was made of the connection, or raise ``BrokerUnavailable`` after one attempt."""
        made = self._made
        if made is not None and self._is_usable(made):
            return made
        if self._attempt is None:
            self._attempt = asyncio.create_task(self._try(), name="tidewheel-dial")
            self._attempt.add_done_callback(self._end_attempt)
        attempt = self._attempt
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling() or not attempt.cancelled():
                raise
            raise BrokerUnavailable("the broker was closed here while it was being connected to") from None

    async def drop(self, why: str) -> None:
        """Cut the connection: it does not answer. The next who needs one gets another."""
        connection, self._connection, self._made = self._connection, None, None
        if connection is not None:
            connection.lane.abort(why)
            await connection.close()

    async def drop_if(self, made: _T, why: str) -> None:
        """Do that if *made* is still what is used."""
        if self._made is made:
            await self.drop(why)

    async def close(self) -> None:
        """Let go for good."""
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait([self._attempt])
        connection, self._connection, self._made = self._connection, None, None
        if connection is not None:
            await connection.close()

    def _end_attempt(self, attempt: asyncio.Task[_T]) -> None:
        self._attempt = None
        if not attempt.cancelled():
            attempt.exception()  # whoever waited was told, or has left

    async def _try(self) -> _T:
        loop = asyncio.get_running_loop()
        lived_s = loop.time() - self._made_at_s
        if self._made is not None and lived_s < STEADY_S:
            self._failures += 1
        await self.drop("it is replaced")
        if self._failures:
            pause_s = min(PAUSE_FIRST_S * 2 ** min(self._failures, 10), PAUSE_MAX_S)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret: it spreads attempts
        try:
            connection = await self._dial()
            try:
                made = await self._make(connection)
            except BaseException:
                await connection.close()
                raise
        except BaseException:
            self._failures += 1
            raise
        self._connection, self._made, self._made_at_s = connection, made, loop.time()
        self._failures = 0
        self.opened += 1
        return made
