"""Where a step is executed: on the event loop, in a thread, or in a process; and how many at a time.

Threads and processes are few, and what waits for one of them holds up nobody else. A thread that outlasts its
attempt keeps its place until it has ended: nobody can use it before.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import functools
import inspect
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from tidewheel.sdk.app import App
from tidewheel.sdk.definitions import TaskDefinition

#: Steps that may wait for a place, per place, before further ones are given to the queue, for others.
WAITING_PER_PLACE: Final = 1


class Kind(enum.Enum):
    """What executes a step."""

    __hash__ = object.__hash__  # members are alone with their value, and the enum's own is slow

    LOOP = "loop"
    THREAD = "thread"
    PROCESS = "process"


def kind_of(definition: TaskDefinition | None, call: Callable[[], Any] | None = None) -> Kind:
    """Return what executes a task, or, without a definition, the closure of an operation."""
    if definition is not None and definition.process:
        return Kind.PROCESS
    if definition is not None:
        return _kind_of_task(definition.fn)
    return Kind.LOOP if call is None or is_async(call) else Kind.THREAD


def is_async(fn: Callable[..., Any]) -> bool:
    """Tell whether calling *fn* gives a coroutine, also where a decorator that kept its name is around it."""
    return inspect.iscoroutinefunction(getattr(fn, "__wrapped__", fn))


#: The functions whose kind is remembered: tasks are few, and each of them is asked about with every step.
_TASKS_MAX: Final = 4096


@functools.lru_cache(_TASKS_MAX)
def _kind_of_task(fn: Callable[..., Any]) -> Kind:
    return Kind.LOOP if is_async(fn) else Kind.THREAD


def capacity(app: App, *, slots: int, threads: int, processes: int) -> int:
    """Return how many steps of *app* a worker can have under way at a time, by what its tasks are.

    It takes no more work than that in hand: the rest is for other workers.
    """
    kinds = {kind_of(definition) for definition in app.tasks.values()}
    if not kinds or Kind.LOOP in kinds:
        return slots
    sizes = {Kind.THREAD: threads, Kind.PROCESS: processes}
    return min(slots, sum(sizes[kind] for kind in kinds))


class Place:
    """One thread or process of a lane, while somebody has it."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._is_kept = False

    def keep_until_done(self, work: Future[Any]) -> None:
        """The place is taken until *work*, which a thread does, has ended, however the attempt ends."""
        self._is_kept = True
        loop = asyncio.get_running_loop()

        def ended(_: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits for a place
                loop.call_soon_threadsafe(self._lane.give_back)

        work.add_done_callback(ended)

    def leave(self) -> None:
        """The attempt is over."""
        if not self._is_kept:
            self._lane.give_back()


class Lane:
    """The threads, or the processes, of a worker."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = asyncio.Semaphore(size)
        self._taken = 0
        self._waiting = 0

    def has_room(self, ordered: int) -> bool:
        """Tell whether one more step may wait here, *ordered* being asked for already."""
        return self._taken + self._waiting + ordered < self.size * (1 + WAITING_PER_PLACE)

    async def take(self) -> Place:
        """Wait for a place."""
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        self._taken += 1
        return Place(self)

    def give_back(self) -> None:
        """A place is free again."""
        self._taken -= 1
        self._free.release()
