"""Tells consumers that a file of queues changed: at once within this process, soon from others.

Who publishes here rings the bells of this process. For what other processes write, one thread for
each file asks ``PRAGMA data_version``, which reads no table; waking a thread is what costs, so that
all consumers of a file share it.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

#: How often to ask whether somebody wrote: the latency between processes.
POLL_S = 0.01
#: The same where nothing was written for a while: half the cost, and hardly later.
QUIET_POLL_S = 0.02
QUIET_AFTER_POLLS = 100
#: Then the file is opened again: it may have been replaced.
POLLS_MAX = 500
#: How long to leave a file alone that cannot be read; its consumers find out by themselves.
TROUBLE_S = 0.25

_lock = threading.Lock()
_bells: dict[Path, set[threading.Event]] = {}
_watchers: dict[Path, threading.Thread] = {}


def listen(path: Path, bell: threading.Event) -> None:
    """Ring *bell* whenever the file at *path* may hold something new, until ``stop_listening``."""
    with _lock:
        _bells.setdefault(path, set()).add(bell)
        watcher = _watchers.get(path)
        # A fork inherits the entry, but not the thread.
        if watcher is None or not watcher.is_alive():
            watcher = threading.Thread(target=_watch, args=(path,), name=f"watch {path.name}", daemon=True)
            _watchers[path] = watcher
            watcher.start()


def stop_listening(path: Path, bell: threading.Event) -> None:
    """Ring *bell* no more; without bells nobody watches the file. May be called twice."""
    with _lock:
        bells = _bells.get(path, set())
        bells.discard(bell)
        if not bells:
            _bells.pop(path, None)


def ring(path: Path) -> None:
    """Ring every bell of this process for the file at *path*."""
    with _lock:
        bells = list(_bells.get(path, ()))
    for bell in bells:
        bell.set()


def _is_wanted(path: Path) -> bool:
    """Tell whether anybody listens; if not, the watcher is struck off here, so that no bell is missed."""
    with _lock:
        if path in _bells:
            return True
        if _watchers.get(path) is threading.current_thread():
            del _watchers[path]
        return False


def _watch(path: Path) -> None:
    """Ring when anybody has written, while anybody listens."""
    while _is_wanted(path):
        try:
            connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None)
            try:
                _watch_open(path, connection)
            finally:
                connection.close()
        except sqlite3.Error:
            time.sleep(TROUBLE_S)


def _watch_open(path: Path, connection: sqlite3.Connection) -> None:
    seen, quiet_polls = None, 0
    for _ in range(POLLS_MAX):
        if not _is_wanted(path):
            return
        version = connection.execute("PRAGMA data_version").fetchone()
        quiet_polls = quiet_polls + 1 if version == seen else 0
        if version != seen:
            seen = version
            ring(path)
        time.sleep(POLL_S if quiet_polls < QUIET_AFTER_POLLS else QUIET_POLL_S)
