"""The simulated event loop: virtual time, simulated processes, and a scheduler driven by a seed.

A *step* is one handle run by this loop: the code between two awaits of one task, a timer's callback,
or one operation of the store or the broker. What may be reordered and what may not:

1. Inside a process callbacks run in the order in which they were scheduled, and timers in the order
   in which they are due: asyncio promises that, and code may rely on it.
2. Between processes anything goes: each step belongs to a process drawn by the seed.
3. When an answer comes, relative to everything else, is the seed's too (``wire`` draws each latency).

A process is a mark in the context of its tasks. A killed one never runs again: no handle, no timer
and no ``finally`` block of it. A frozen one is held back and later goes on, late.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import gc
import hashlib
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_Context: TypeAlias = contextvars.Context | None

#: Tasks a process may have finished before they are looked through and let go.
TASKS_KEPT = 400
#: How long nobody may look at the error of a task: those that are waited for together may end one after the
#: other, and whoever waits may be frozen for a while.
UNHEARD_MAX_S = 120.0
#: Which process the running code belongs to.
_PROCESS: contextvars.ContextVar[Process] = contextvars.ContextVar("simulated_process")


class Process:
    """One simulated process: what it is about to run, and whether it still can."""

    def __init__(self, loop: SimulatedLoop, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.loop = loop
        self.is_alive = True
        self.is_frozen = False
        self.ready: deque[asyncio.Handle] = deque()
        #: All its tasks: what nobody refers to must not be finalised, neither alive nor dead.
        self.tasks: list[asyncio.Task[Any]] = []
        self.context = contextvars.copy_context()
        self.context.run(_PROCESS.set, self)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Let the process do *work*."""
        return self.loop.create_task(work, context=self.context.copy())

    def call_later(self, delay_s: float, call: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """Let the process call *call* later."""
        return self.loop.call_later(delay_s, call, *args, context=self.context)

    def kill(self) -> None:
        """End it at once, as SIGKILL does: nothing of it ever runs again."""
        self.is_alive = False
        self.loop.bury(self)


class SimulatedLoop(asyncio.BaseEventLoop):
    """See the module. *fate* is asked before each step whether its process dies instead."""

    def __init__(self, chance: random.Random, *, fate: Callable[[Process], bool]) -> None:
        super().__init__()
        self.steps = 0
        self.now_s = 0.0
        self.trace = hashlib.blake2b(digest_size=16)
        self._chance = chance
        self._fate = fate
        self._numbers = itertools.count()
        self._processes: list[Process] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = itertools.count()
        self._graves: list[object] = []
        #: When each task was first found to have ended with an error that nobody has looked at.
        self._silent_since: dict[asyncio.Task[Any], float] = {}
        #: Used by the loop itself, for what runs outside of any process.
        self.harness = self.new_process("harness")

    def new_process(self, name: str) -> Process:
        """Begin a process."""
        process = Process(self, name, next(self._numbers))
        self._processes.append(process)
        return process

    def bury(self, process: Process) -> None:
        """Forget a dead process, but keep what is left of it from being finalised."""
        self._processes.remove(process)
        self._graves.append(process)

    def preserve(self) -> None:
        """Keep everything from being finalised for as long as the interpreter runs, and after.

        Suspended code that is collected runs its ``finally`` blocks, in whatever state the world is.
        """
        self._graves += [self._processes, self._timers, self]
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._graves))

    def record(self, what: str) -> None:
        """Make *what* a part of the trace."""
        self.trace.update(what.encode())

    # What asyncio calls

    def time(self) -> float:
        """The virtual time."""
        return self.now_s

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Make a task that its process keeps."""
        task = super().create_task(coro, **options)
        context = options.get("context")
        process = self._process_of(contextvars.copy_context() if context is None else context)
        process.tasks.append(task)
        if len(process.tasks) > TASKS_KEPT:
            process.tasks = [one for one in process.tasks if not one.done() or _is_unheard(one)]
        return task

    def unheard(self, for_s: float = UNHEARD_MAX_S) -> list[tuple[Process, BaseException]]:
        """Return the errors of tasks that nobody looked at *for_s*: asyncio would complain of them, some day.

        Whoever waits for several tasks at once looks at them when the last has ended.
        """
        silent = [
            (process, task)
            for process in self._processes
            for task in process.tasks
            if task.done() and _is_unheard(task)
        ]
        self._silent_since = {task: self._silent_since.get(task, self.now_s) for _, task in silent}
        return [
            (process, problem)
            for process, task in silent
            if self.now_s - self._silent_since[task] >= for_s and (problem := task.exception()) is not None
        ]

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: _Context = None
    ) -> asyncio.Handle:
        """There is one thread: soon is soon."""
        return self.call_soon(callback, *args, context=context)

    def _call_soon(
        self, callback: Callable[..., object], args: Any, context: contextvars.Context | None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._enqueue(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: _Context = None,
    ) -> asyncio.TimerHandle:
        """Run *callback* when virtual time has come to *when*."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def _timer_handle_cancelled(self, _handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are thrown out when they come up."""

    def _run_once(self) -> None:
        """Run one step, letting time pass first if nothing else can happen."""
        self._ring()
        runnable = [one for one in self._processes if one.ready and not one.is_frozen]
        while not runnable:
            assert self._timers, "nothing can ever happen any more"
            self.now_s = max(self.now_s, self._timers[0][0])
            self._ring()
            runnable = [one for one in self._processes if one.ready and not one.is_frozen]
        process = runnable[int(self._chance.random() * len(runnable))] if len(runnable) > 1 else runnable[0]
        handle = process.ready.popleft()
        if handle.cancelled():
            return
        self.steps += 1
        self.trace.update(b"%d %d;" % (process.number, self.now_s * 1_000_000))
        if self._fate(process):
            self._graves.append(handle)
            return
        handle._run()

    def _ring(self) -> None:
        """Hand the timers that are due to their processes."""
        timers = self._timers
        while timers and timers[0][0] <= self.now_s:
            self._enqueue(heapq.heappop(timers)[2])

    def _enqueue(self, handle: asyncio.Handle) -> None:
        process = self._process_of(handle._context)  # type: ignore[attr-defined]  # it says who runs it
        if process.is_alive:
            process.ready.append(handle)
        else:
            self._graves.append(handle)

    def _process_of(self, context: contextvars.Context) -> Process:
        return context.get(_PROCESS, None) or self.harness


def _is_unheard(task: asyncio.Task[Any]) -> bool:
    """Tell whether *task* ended with an error that nobody has looked at."""
    return bool(getattr(task, "_log_traceback", False))


def current_process() -> Process:
    """Return the process whose code is running."""
    return _PROCESS.get()


def run(loop: SimulatedLoop, main: Coroutine[Any, Any, T]) -> T:
    """Run *main* in the harness, without the garbage collector, whose moments no seed knows."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return loop.run_until_complete(loop.harness.spawn(main))
    finally:
        loop.preserve()
        if was_enabled:
            gc.enable()
