"""The deterministic event loop: first in, first out, no selector, no clock of its own.

Three rules keep its order a function of the code and what the code is shown:

1. Callbacks run in the order they were scheduled; nothing else adds to the queue.
2. Tasks and futures hash by creation number, because asyncio itself keeps them in
   sets (``wait``, ``as_completed``, ``TaskGroup``) and iterates those.
3. Time stands still while the code moves; a later moment is a durable timer, which
   the loop's host records and fires.

The standard library's own ``Task`` and ``Future`` do the rest. The loop is entered
and left around each stretch of movement, inside whatever loop the process runs.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import weakref
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Protocol, Self

from tidewheel.replay import dropping, guards, steady
from tidewheel.replay.forbidden import refuse_io
from tidewheel.replay.violation import Halted

#: Callbacks in one stretch of movement before the code counts as spinning.
TICKS_MAX = 1_000_000
#: A dead workflow may swallow this many refusals in its ``finally`` blocks before it is left as it is.
REFUSALS_MAX = 1_000


class Host(Protocol):
    """Who records a loop's timers and hears of what went wrong in it."""

    def timer_scheduled(self, timer: DurableTimer, delay: float) -> None:
        """A callback was asked for *delay* seconds from now."""

    def timer_cancelled(self, timer: DurableTimer) -> None:
        """The code no longer wants the callback (it may have run already)."""

    def time_observed(self) -> None:
        """The code read the loop's time."""

    def unhandled(self, context: dict[str, Any]) -> None:
        """An exception reached nobody."""


class Spinning(Exception):
    """The code never comes to rest: a loop in it awaits nothing durable."""


class WorkflowFuture(asyncio.Future[Any]):
    """A future whose place in a set follows from when it was made."""

    __slots__ = ("number",)

    def __init__(self, *, loop: DeterministicLoop) -> None:
        super().__init__(loop=loop)
        self.number = loop.next_number()

    def __hash__(self) -> int:
        return self.number


class WorkflowTask(asyncio.Task[Any]):
    """A task whose place in a set follows from when it was made."""

    __slots__ = ("number",)

    #: From 1; 0 while the task is being made.
    number: int

    def __init__(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        loop: DeterministicLoop,
        name: str | None,
        context: contextvars.Context | None,
    ) -> None:
        number = loop.next_number()
        self.number = 0
        super().__init__(coro, loop=loop, name=name or f"task-{number}", context=context)
        self.number = number

    def __hash__(self) -> int:
        # While __init__ runs, asyncio files the task in a process-wide weak set: equal numbers
        # of many runs would collide there, so until it has its number it hashes by address.
        return self.number or object.__hash__(self)


class DurableTimer(asyncio.TimerHandle):
    """A callback at a later time, waiting for the journal to say that the time has come."""

    __slots__ = ("path",)

    path: str
    _loop: DeterministicLoop
    _callback: Callable[..., object]

    def settle(self, _result: object) -> None:
        """The timer has fired: the callback runs next."""
        self._loop.ready.append(self)

    def awaited(self) -> bool:
        """A timer that was not cancelled always wakes something."""
        return not self.cancelled()


class Soon(asyncio.Handle):
    """A callback that runs in its turn. asyncio's own asks the loop whether to remember where it was made."""

    __slots__ = ()

    _callback: Callable[..., object]
    _args: tuple[Any, ...]

    def __init__(  # asyncio's own is left out on purpose
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: DeterministicLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class DeterministicLoop(asyncio.AbstractEventLoop):
    """The loop a workflow's code runs on. See the module's rules."""

    def __init__(self, host: Host) -> None:
        self.ready: deque[asyncio.Handle] = deque()
        self.tasks: list[WorkflowTask] = []
        self.now = 0.0
        self.halted = False
        self._host: Host | None = host
        self._numbers = 0
        self._tasks_kept_max = 64
        self._failed: list[weakref.ref[WorkflowTask]] = []
        self._generators: list[AsyncGenerator[Any, Any]] = []
        self._refusals = 0
        #: The thread that moves the code right now, the loop it came from, and what was there before.
        self._thread: int | None = None
        self._outer: asyncio.AbstractEventLoop | None = None
        self._hooks: Any = None

    # Movement

    def run_until_idle(self) -> None:
        """Run callbacks until none is left, or the code is halted. The loop must be entered."""
        ready = self.ready
        for _ in range(TICKS_MAX):
            if not ready or self.halted:
                return
            handle = ready.popleft()
            if handle._cancelled:  # noqa: SLF001 - as asyncio's own loop does
                continue
            try:
                # What ``Handle._run`` does, without a call in between.
                handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]  # noqa: SLF001 - as above
            except SystemExit:
                pass  # its task has it, for whoever awaits that: workflow code does not end its worker
            except KeyboardInterrupt:
                raise
            except BaseException as problem:  # noqa: BLE001 - a callback's failure is told, and nobody else's
                message = f"Exception in callback {handle!r}"
                self.call_exception_handler({"message": message, "exception": problem, "handle": handle})
        message = (
            f"the code did not come to rest in {TICKS_MAX:,} steps: a loop in it awaits nothing durable "
            "(use `await ctx.sleep(...)` to wait)"
        )
        raise Spinning(message)

    def __enter__(self) -> Self:
        """Become the running loop of this thread, with the guards up."""
        thread = self._thread = guards.this_thread()
        self._outer = events._get_running_loop()  # noqa: SLF001 - a nested loop has no public door
        if thread != MANY_MOVEMENTS.thread:
            self._hooks = sys.get_asyncgen_hooks()
            sys.set_asyncgen_hooks(_keep_generator, dropping.drop_generator)
            guards.raise_guards()
        events._set_running_loop(self)  # noqa: SLF001 - a nested loop has no public door
        return self

    def __exit__(self, *_exc: object) -> None:
        """Give the thread back to the loop it came from."""
        events._set_running_loop(self._outer)  # noqa: SLF001 - a nested loop has no public door
        self._outer = None
        self._thread = None
        if self._hooks is not None:
            guards.lower_guards()
            sys.set_asyncgen_hooks(*self._hooks)
            self._hooks = None

    def is_current(self) -> bool:
        """Tell whether this thread is moving this loop's code right now."""
        return events._get_running_loop() is self  # noqa: SLF001 - the public call raises where there is none

    def halt(self) -> None:
        """Stop moving after the current callback, for good."""
        self.halted = True
        self._refusals += 1

    def is_stubborn(self) -> bool:
        """Tell whether the code swallows every refusal and goes on."""
        return self._refusals >= REFUSALS_MAX

    def is_at_work(self) -> bool:
        """Tell whether this thread is moving this loop's code, and nothing was ever refused to it."""
        # Every durable verb asks, and up to Python 3.11 asyncio's own answer costs a system call.
        return self._thread == guards.this_thread() and self._refusals == 0 and self._host is not None

    def next_number(self) -> int:
        """Number a new task or future."""
        if self._host is None:
            self.refuse_if_dead()
        self._numbers += 1
        return self._numbers

    # What asyncio asks of a loop

    def call_soon(  # type: ignore[override]  # the stubs bind the arguments' types to the callback's
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Run *callback* after everything already scheduled."""
        handle = Soon(callback, args, self, context)
        if self._host is not None:
            self.ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]  # as call_soon
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a durable timer; a delay of zero or less needs none."""
        timer = DurableTimer(self.now + delay, callback, args, self, context)
        if self._host is None:
            self.refuse_if_dead()
        elif delay <= 0:
            self.ready.append(timer)
        else:
            self._host.timer_scheduled(timer, delay)
        return timer

    def call_at(  # type: ignore[override]  # as call_soon
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a durable timer for the moment *when* of this loop's time."""
        return self.call_later(when - self.now, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if self._host is not None:
            assert isinstance(handle, DurableTimer)
            self._host.timer_cancelled(handle)

    def time(self) -> float:
        """The latest moment the code was shown."""
        if self._host is not None:
            self._host.time_observed()
        return self.now

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future of this loop."""
        return WorkflowFuture(loop=self)

    def create_task(  # type: ignore[override]  # the stubs ask for Generator too, which asyncio no longer takes
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **_future_options: Any,
    ) -> asyncio.Task[Any]:
        """Make a task of this loop; the loop keeps it alive until it is done."""
        try:
            task = WorkflowTask(coro, loop=self, name=name, context=context)
        except Halted:
            coro.close()
            raise
        if len(self.tasks) >= self._tasks_kept_max:
            self._forget_done()
            self._tasks_kept_max = max(64, 2 * len(self.tasks))
        self.tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Hand what nobody handled to the host; it must not vanish."""
        if self._host is not None and not isinstance(context.get("exception"), Halted):
            self._host.unhandled(context)

    default_exception_handler = call_exception_handler

    def get_exception_handler(self) -> None:
        """There is no handler but the host."""

    #: Never: debug mode reads the clock. ``bool()`` says so too, without a call into Python for every
    #: task, future and callback.
    get_debug = bool

    def is_running(self) -> bool:
        """Code can only ask while it runs."""
        return True

    def is_closed(self) -> bool:
        """A loop whose run was given up is closed."""
        return self._host is None

    async def shutdown_asyncgens(self) -> None:
        """Close what the code left open, oldest first, as ``asyncio.run`` does at its end."""
        open_generators, self._generators = self._generators, []
        for generator in open_generators:
            if getattr(generator, "ag_running", False):  # a branch is inside of it, and ends it
                self._generators.append(generator)
                continue
            try:
                await generator.aclose()
            except (Exception, asyncio.CancelledError) as problem:  # noqa: BLE001 - the others are closed all the same
                message = f"{generator!r} failed while it was closed"
                self.call_exception_handler({"message": message, "exception": problem})

    # The end

    def open_tasks(self) -> list[WorkflowTask]:
        """The tasks that are not done, oldest first."""
        self._forget_done()
        return list(self.tasks)

    def unheard_tasks(self) -> list[WorkflowTask]:
        """The tasks whose failure reached nobody so far, oldest first."""
        self._forget_done()
        found = (one() for one in self._failed)
        return [task for task in found if task is not None and dropping.is_unheard(task)]

    def _forget_done(self) -> None:
        if not self.tasks:
            return
        # A failure that nobody holds says so itself when it is dropped, but one in a cycle would
        # wait for the collector, perhaps until after the run.
        self._failed += [
            weakref.ref(task) for task in self.tasks if task.done() and dropping.is_unheard(task)
        ]
        self.tasks = [task for task in self.tasks if not task.done()]

    def has_open_generators(self) -> bool:
        """Tell whether an async generator was left suspended."""
        self._generators = [gen for gen in self._generators if getattr(gen, "ag_frame", None) is not None]
        return bool(self._generators)

    def abandon(self, forget: Callable[[], None], *, is_over: bool = False) -> None:
        """Drop everything suspended here. ``finally`` blocks run, but can do nothing durable.

        The last references go while the loop is entered, *forget* drops the host's: code that
        swallows its own end is told once more when it is deallocated, and elsewhere it would
        find no loop to wait on and never come to rest. Where the host knows that its code *is
        over*, and the loop has nothing left of it either, there is nobody to tell.
        """
        self._host = None
        self.ready.clear()
        if is_over and not self.tasks and not self._generators:
            forget()
            return
        with self, dropping.stubborn_code_unheard():
            self._close_all()
            self.tasks.clear()
            self._generators.clear()
            forget()
            self.ready.clear()

    def _close_all(self) -> None:
        for task in self.tasks:
            dropping.drop_task(task)
        for generator in self._generators:
            dropping.drop_generator(generator)

    def refuse_if_dead(self) -> None:
        """Stop code that goes on after its run was given up; code that will not stop is left suspended."""
        if self._host is None and not self.is_stubborn():
            self._refusals += 1
            message = "this run's memory was given up here; it goes on from its journal elsewhere"
            raise Halted(message)

    def keep_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Remember a generator that the code has begun to go through."""
        # Kept until the end of the run: when the garbage collector would finalize it is not repeatable.
        if len(self._generators) % 64 == 63:  # noqa: PLR2004 - a bound on the list, amortised
            self.has_open_generators()
        self._generators.append(generator)


class ManyMovements:
    """Does once what entering a loop does, for the many that are entered in this thread within the block.

    What is refused is refused to workflow code alone, so nobody else in between notices. One thread at a time
    has this; another that comes meanwhile enters its loops one by one, as it would without.
    """

    def __init__(self) -> None:
        self.thread: int | None = None
        self._depth = 0
        self._hooks: Any = None

    def __enter__(self) -> None:
        """Prepare this thread."""
        thread = guards.this_thread()
        if self.thread is None:
            self.thread = thread
            self._hooks = sys.get_asyncgen_hooks()
            sys.set_asyncgen_hooks(_keep_generator, dropping.drop_generator)
            guards.raise_guards()
        if self.thread == thread:
            self._depth += 1

    def __exit__(self, *_exc: object) -> None:
        """Let the thread be as it was."""
        if self.thread != guards.this_thread():
            return
        self._depth -= 1
        if not self._depth:
            self.thread = None
            guards.lower_guards()
            sys.set_asyncgen_hooks(*self._hooks)


MANY_MOVEMENTS = ManyMovements()


def _keep_generator(generator: AsyncGenerator[Any, Any]) -> None:
    loop = events._get_running_loop()  # noqa: SLF001 - the public call raises where there is none
    if isinstance(loop, DeterministicLoop):
        loop.keep_generator(generator)


refuse_io(DeterministicLoop)  # type: ignore[type-abstract]  # which is what this mends


def is_workflow_loop(loop: object) -> bool:
    """Tell whether *loop* runs workflow code."""
    return type(loop) is DeterministicLoop


guards.protect(is_workflow_loop)
steady.install(is_workflow_loop)
