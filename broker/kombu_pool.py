"""Connections of kombu's, pooled: each is used by one thread at a time, and there are so many threads.

A connection is made when none is idle, so a process has as many as it ever needed at once. One that
fails is not used again. One that had failed while it lay idle, as when the broker was restarted, costs
its user nothing: the work is done again over a new one. Nothing in here decides whether to try later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.kombu_wire import Target, Wire, is_lost, our_errors
from tidewheel.journal.errors import TidewheelError

#: How much work may wait for a thread; who comes later waits before it.
PENDING_MAX = 256
#: How long closing waits for what is being done.
CLOSE_MAX_S = 15.0

_log = logging.getLogger(__name__)

_T = TypeVar("_T")


class WirePool:
    """At most ``target.wires_max`` connections to one broker, for whoever is in this event loop."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._threads = ThreadPoolExecutor(target.wires_max, thread_name_prefix="publish")
        self._pending = asyncio.Semaphore(PENDING_MAX)
        self._under_way: set[asyncio.Future[Any]] = set()
        #: The last one used is the next one used, so that the others are idle, and seen to be so.
        self._idle: deque[Wire] = deque()
        self.is_closed = False

    async def do(self, work: Callable[[Wire], _T], *, declaring: bool = False) -> _T:
        """Do *work* in a thread, with a connection. Whoever is cancelled while it waits does not begin."""
        async with self._pending:
            self.check_open()
            doing = asyncio.get_running_loop().run_in_executor(self._threads, self._do, work, declaring)
            self._under_way.add(doing)
            doing.add_done_callback(self._under_way.discard)
            return await doing

    async def close(self) -> None:
        """Finish what is under way and disconnect. May be called twice."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=CLOSE_MAX_S)
        disconnecting = asyncio.get_running_loop().run_in_executor(self._threads, self._disconnect)
        await asyncio.wait([disconnecting], timeout=CLOSE_MAX_S)
        self._threads.shutdown(wait=False)

    def check_open(self) -> None:
        """Raise ``BrokerUnavailable`` after closing."""
        if self.is_closed:
            raise BrokerUnavailable(f"{self._target.shown} was closed here")

    # In a thread.

    def _do(self, work: Callable[[Wire], _T], declaring: bool) -> _T:  # noqa: FBT001 - for run_in_executor
        """Do it. Drivers raise what they like; whoever publishes a hint has to know one error only."""
        try:
            with our_errors(self._target, declaring=declaring):
                return self._do_again_if_lost(work)
        except TidewheelError:
            raise
        except Exception as error:
            _log.exception("%s failed by a bug", self._target.shown)
            raise BrokerUnavailable(f"{self._target.shown} failed by a bug: {error!r}") from error

    def _do_again_if_lost(self, work: Callable[[Wire], _T]) -> _T:
        wire = self._take()
        if wire is not None:
            try:
                return self._with(wire, work)
            except Exception as error:
                if not is_lost(error):
                    raise
        return self._with(self._target.connect(), work)

    def _with(self, wire: Wire, work: Callable[[Wire], _T]) -> _T:
        """Do it, and keep the connection if that went well."""
        try:
            done = work(wire)
        except BaseException:
            wire.drop()
            raise
        if self.is_closed:
            wire.close()
        else:
            self._idle.append(wire)
        return done

    def _take(self) -> Wire | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _disconnect(self) -> None:
        while (wire := self._take()) is not None:
            wire.close()
