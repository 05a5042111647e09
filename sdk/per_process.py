"""One client in each process that uses it: connected there when it is first used.

A fork copies a client, but not its threads, and what it is connected to must not be used by two
processes. So each process gets a client of its own. What was connected before a fork is not touched
after it, not even closed: it is the parent's.

SQLite cannot be opened again where it was open at the fork: its locks are kept per process, and the
copy believes that it holds those of the parent. That is refused. A client that is first used after the
fork is fine with any store, and that is what servers that fork should see to.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from tidewheel.journal.errors import InvalidRequest
from tidewheel.sdk.client import Client
from tidewheel.sdk.loop_thread import CLOSED, LoopThread
from tidewheel.sdk.on_demand import OnDemand

T = TypeVar("T")

_FORKED = (
    "this client was used before a fork, and files of SQLite, or a store in memory, cannot be carried over "
    "one; use SyncClient.lazy, and use it first in the new process"
)


class LocalClient:
    """A client in a thread of its own. Connected when it is first used; if that fails, at the next use."""

    def __init__(self, connect: Callable[[], Coroutine[Any, Any, Client]]) -> None:
        self._client = OnDemand(connect, name="tidewheel-connect")
        self.thread = LoopThread()

    def call(self, verb: Callable[[Client], Awaitable[T]]) -> T:
        """Do *verb* with the client, and wait for it."""
        return self.thread.call(self._do(verb))

    @property
    def has_used_store(self) -> bool:
        """Whether the store may be open; also after a fork, of the parent's client."""
        client = self._client.peek()
        return client is not None and client.has_used_store

    def close(self) -> None:
        """Let go of everything; whoever waits for a result is told. May be called twice."""
        try:
            if self.thread.is_usable:
                self.thread.call(self._close())
        finally:
            self.thread.close()

    async def _do(self, verb: Callable[[Client], Awaitable[T]]) -> T:
        return await verb(await self._client.get())

    async def _close(self) -> None:
        client = await self._client.take()
        if client is not None:
            await client.close()


class _Place:
    """What one process has. The lock was made there: one from before a fork may be held for ever."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.client: LocalClient | None = None


class PerProcess:
    """The clients of this process and of those it was forked from."""

    def __init__(
        self,
        connect: Callable[[], Coroutine[Any, Any, Client]],
        *,
        survives_fork: Callable[[Sequence[LocalClient]], bool],
    ) -> None:
        """Connect with *connect*; *survives_fork* says whether that can be done again after a fork.

        It is given the clients that were used before the fork.
        """
        self._connect = connect
        self._survives_fork = survives_fork
        self._places: dict[int, _Place] = {}
        self._is_closed = False

    def here(self) -> LocalClient:
        """Return the client of this process."""
        place = self._place()
        with place.lock:
            if self._is_closed:
                raise InvalidRequest(CLOSED)
            if place.client is None:
                self._check_fork()
                place.client = LocalClient(self._connect)
            return place.client

    def close(self) -> None:
        """Close the client of this process. May be called twice."""
        place = self._place()
        with place.lock:
            self._is_closed = True
            client = place.client
        if client is not None:
            client.close()

    def _place(self) -> _Place:
        # Asked each time, and of the system: not every server tells Python that it forks.
        process = os.getpid()
        return self._places.get(process) or self._places.setdefault(process, _Place())

    def _check_fork(self) -> None:
        earlier = [place.client for place in self._places.values() if place.client is not None]
        if earlier and not self._survives_fork(earlier):
            raise InvalidRequest(_FORKED)
