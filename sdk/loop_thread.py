"""An event loop in a thread of its own, to which other threads hand coroutines and wait for them.

A thread does not survive a fork, and one that waited for itself would wait for ever: both are refused,
with what to do instead.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from tidewheel.journal.errors import InvalidRequest

T = TypeVar("T")

#: How long closing waits for the thread to end.
CLOSE_TIMEOUT_S = 10.0
#: What is said to whoever uses a client after that.
CLOSED = "this client was closed; connect another one"


class LoopThread:
    """An event loop in a thread of its own, to which other threads hand coroutines."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._open = True
        self._lock = threading.Lock()
        # A process that ends without closing its client must not hang.
        self._thread = threading.Thread(target=self._run, name="tidewheel-client", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* in the loop and wait for it. Being interrupted, as by Ctrl-C, cancels it."""
        try:
            future = self._submitted(work)
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise InvalidRequest(CLOSED) from None
        except BaseException:
            future.cancel()
            raise

    def _submitted(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        problem = self._unusable()
        if problem is not None:
            raise InvalidRequest(problem)
        with self._lock:  # so that nothing is handed over to a loop that is about to stop
            if not self._open:
                raise InvalidRequest(CLOSED)
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End the loop and its thread. May be called twice."""
        if os.getpid() != self._process:
            return  # the thread stayed in the process that was forked
        with self._lock:
            if not self._open:
                return
            self._open = False
            self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_TIMEOUT_S)

    @property
    def is_usable(self) -> bool:
        """Whether work can be handed over, from here and now."""
        return self._open and self._unusable() is None

    def _unusable(self) -> str | None:
        if os.getpid() != self._process:
            return "this handle was made before a fork; get another one from the client in this process"
        if threading.current_thread() is self._thread:
            return "a SyncClient cannot be used in its own thread: it would wait for itself; use Client there"
        return None

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            _cancel_all(self._loop)
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what is still running, and let it end."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
