"""Notices that something was written, by this process or another.

SQLite counts commits of other connections (``PRAGMA data_version``), whichever process they are in. A thread
with a connection of its own looks at that count while somebody waits: every few milliseconds, and at once
when the writer of this process says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading

from tidewheel.store.errors import SchemaMismatch, StoreUnavailable
from tidewheel.store.sqlite.connection import Database, Held

POLL_S = 0.015


class Watcher:
    """Lets any number of coroutines wait for the next commit."""

    def __init__(self, database: Database) -> None:
        self._held = Held(database, reads_only=True)
        self._condition = threading.Condition()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._thread: threading.Thread | None = None
        self._version: int | None = None
        self._is_closed = False

    async def wait(self, timeout_s: float) -> None:
        """Return after a commit since the last time somebody waited, or after *timeout_s*."""
        changed = asyncio.Event()
        entry = (asyncio.get_running_loop(), changed)
        with self._condition:
            if self._is_closed:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tidewheel-watcher", daemon=True)
                self._thread.start()
            self._waiting.add(entry)
            self._condition.notify()
        try:
            # Not wait_for: on Python 3.11 it swallows a cancel that comes together with the change.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await changed.wait()
        finally:
            with self._condition:
                self._waiting.discard(entry)

    def written(self) -> None:
        """Look now: this process has committed."""
        if self._waiting:
            with self._condition:
                self._condition.notify()

    def close(self) -> None:
        """Let everybody go on, and stop."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()
        self._wake_all()

    def _run(self) -> None:
        while not self._is_closed:
            if self._has_changed():
                self._wake_all()
            with self._condition:
                if not self._is_closed:
                    self._condition.wait(POLL_S if self._waiting else None)
        self._held.drop()

    def _has_changed(self) -> bool:
        """Look at the count; a database that cannot be read has changed, and its next user will hear why."""
        try:
            (version,) = self._held.get().execute("PRAGMA data_version").fetchone()
        except (sqlite3.Error, StoreUnavailable, SchemaMismatch):
            self._version = None
            return True
        before, self._version = self._version, version
        return before is not None and before != version

    def _wake_all(self) -> None:
        with self._condition:
            for loop, changed in self._waiting:
                with contextlib.suppress(RuntimeError):  # the loop was closed
                    loop.call_soon_threadsafe(changed.set)
