"""The one thread of a process that writes.

Calls that wait at the same time share a transaction, so that they share its sync to the disk. Rule: each
caller gets its own answer. If one of a group fails, the group is rolled back and its members are done one by
one; if the database itself is at fault, all of them are told so.

The lock is taken with ``BEGIN IMMEDIATE`` before anything is looked at ("lock, then look").
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from tidewheel.store.counting import Counters
from tidewheel.store.errors import StoreUnavailable
from tidewheel.store.sqlite.connection import Database, Held
from tidewheel.store.sqlite.faults import commit_error, concerns_all, translated

#: So many calls share one transaction at most: what is lost if one of them fails is bounded.
GROUP_MAX = 64

T = TypeVar("T")


class _Call(Generic[T]):
    """Something to do in a transaction, and who waits for its answer."""

    __slots__ = ("future", "work")

    def __init__(self, work: Callable[[sqlite3.Connection], T]) -> None:
        self.work = work
        self.future: Future[T] = Future()


class Writer:
    """Executes calls in transactions, in the order in which they came; *written* is called after a commit."""

    def __init__(self, database: Database, counters: Counters, written: Callable[[], None]) -> None:
        self._database = database
        self._held = Held(database)
        self._counters = counters
        self._written = written
        self._calls: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="tidewheel-writer", daemon=True)
        self._thread.start()

    def do(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Execute *work* in a transaction; it may be executed again after a rollback."""
        call = _Call(work)
        with self._lock:
            if self._is_closed:
                raise StoreUnavailable(f"{self._database.path}: the store was closed; nothing was written")
            self._calls.put(call)
        return call.future

    def close(self) -> None:
        """Finish what was asked for, then let go."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._calls.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (group := self._next_group()) is not None:
            calls = [call for call in group if call.future.set_running_or_notify_cancel()]
            if calls:
                self._answer(calls)
            # Or the thread would keep the answers of its last group alive while it waits.
            del group, calls
        self._held.drop()

    def _next_group(self) -> list[_Call[Any]] | None:
        first = self._calls.get()
        if first is None:
            return None
        group = [first]
        with contextlib.suppress(queue.Empty):
            while len(group) < GROUP_MAX:
                call = self._calls.get_nowait()
                if call is None:
                    self._calls.put(None)  # nothing comes after it
                    break
                group.append(call)
        return group

    def _answer(self, calls: list[_Call[Any]]) -> None:
        """Do *calls* in one transaction, or one by one if that fails; every one of them is answered."""
        self._counters.round_trips += len(calls)
        try:
            answers = self._transact(calls)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the caller has to hear of it
            if len(calls) > 1 and not concerns_all(error):
                for call in calls:
                    self._counters.round_trips -= 1
                    self._answer([call])
                return
            told = translated(error, self._database.path)
            for call in calls:
                call.future.set_exception(told)
            return
        for call, answer in zip(calls, answers, strict=True):
            call.future.set_result(answer)

    def _transact(self, calls: list[_Call[Any]]) -> list[Any]:
        connection = self._held.get()
        connection.execute("BEGIN IMMEDIATE")
        changes = connection.total_changes
        try:
            answers = [call.work(connection) for call in calls]
        except BaseException:
            self._roll_back(connection)
            raise
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back(connection)
            raise commit_error(error, self._database.path) from error
        if connection.total_changes != changes:
            self._counters.commits += 1
            self._written()
        return answers

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        """Undo everything; a connection that cannot even do that is given up, which undoes it too."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._held.drop()
