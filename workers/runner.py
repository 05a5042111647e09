"""The slots of a worker: how many steps it executes at a time, and where.

A step that finds no free slot waits for one here, first come first served; how many may wait is
for whoever asks to decide, by ``has_room``.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeAlias

import msgspec

from tidewheel.journal import events as ev
from tidewheel.sdk.definitions import TaskDefinition
from tidewheel.sdk.limits import Limits
from tidewheel.store.append import Append, Appended, Completed
from tidewheel.store.errors import StoreUnavailable
from tidewheel.store.protocol import Store, Transaction
from tidewheel.telemetry import switch
from tidewheel.workers import telling
from tidewheel.workers.attempt import Attempt, Bounds, Pulse, Threads, bounded, execute, heartbeat_limit
from tidewheel.workers.lanes import Kind, Lane, Place, kind_of
from tidewheel.workers.on_loop import OnLoop, Presence
from tidewheel.workers.outcomes import limit_of, start_timed_out, timed_out
from tidewheel.workers.slots import Slots
from tidewheel.workers.task_places import place_of
from tidewheel.workers.task_pool import ProcessFailed, TaskPool
from tidewheel.workers.task_wire import Call
from tidewheel.workers.task_wire import Place as TaskPlace

__all__ = ["Attempt", "Committed", "Outcome", "Room", "Runner", "Underway"]

#: Steps that may wait for a slot, per slot, before further ones are given to the queue. A hop costs more than
#: a short step, so that a fan-out of some hundred is done here.
WAITING_PER_SLOT = 8
#: The pauses while the store of a transactional step is away.
PAUSE_FIRST_S, PAUSE_MAX_S = 0.2, 5.0


class Underway(Protocol):
    """An attempt that was begun, or waits for a slot."""

    def cancel(self) -> object:
        """Give it up: nobody wants to know how it ends. May be called twice, and when it has ended."""


class Committed(msgspec.Struct, frozen=True):
    """A transactional step's result is in the journal already, or was refused there."""

    answer: Appended


class Room:
    """A slot, and where it takes one a thread or a process, for one attempt."""

    __slots__ = ("_slots", "place")

    def __init__(self, slots: Slots, place: Place | None = None) -> None:
        self._slots = slots
        self.place = place

    def leave(self) -> None:
        """Let others have it; to be called once."""
        self._slots.give_back()
        if self.place is not None:
            self.place.leave()


#: What an attempt comes to: an exception is what kept it from a result, such as a store that refused it.
Outcome: TypeAlias = ev.Result | Committed | Exception


class Runner:
    """Executes attempts, a bounded number at a time."""

    def __init__(
        self, store: Store, *, slots: int, threads: int, limits: Limits, processes: TaskPool | None = None
    ) -> None:
        """Without *threads* plain functions are executed in place: where a test wants to see every step."""
        self._store = store
        self._slots = Slots(slots)
        self._presence = Presence()
        self._waiting_max = slots * WAITING_PER_SLOT
        self._limits = limits
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="tidewheel-task") if threads else None
        self._processes = processes
        self._places: dict[str, TaskPlace] = {}
        #: Whether a task needs only the loop, by its name.
        self._on_loop: dict[str, bool] = {}
        self._lanes: dict[Kind, Lane] = {}
        if threads:
            self._lanes[Kind.THREAD] = Lane(threads)
        if processes is not None:
            self._lanes[Kind.PROCESS] = Lane(processes.size)

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        return self._slots.waiting

    @property
    def running(self) -> int:
        """How many have one."""
        return self._slots.taken

    def has_room(self, kind: Kind, ordered: Sequence[Kind]) -> bool:
        """Tell whether one more step may be executed here, those of *ordered* being asked for already."""
        lane = self._lanes.get(kind)
        if lane is not None and not lane.has_room(ordered.count(kind)):
            return False
        return self._slots.waiting + len(ordered) < self._waiting_max

    def room_at_once(self, kind: Kind) -> Room | None:
        """Return room for a step that needs only a slot, if one is free; else it is worth waiting for."""
        if kind in self._lanes or not self._slots.take():
            return None
        return Room(self._slots)

    async def room(self, kind: Kind) -> Room:
        """Wait for a slot, and where it takes one for a thread or a process; whoever gets it leaves it."""
        lane = self._lanes.get(kind)
        # Before the slot: those who wait for a thread must not keep others from theirs.
        place = None if lane is None else await lane.take()
        try:
            await self._slots.wait()
        except BaseException:
            if place is not None:
                place.leave()
            raise
        return Room(self._slots, place)

    def begin(self, attempt: Attempt, ended: Callable[[Attempt, Outcome], None]) -> Underway:
        """Execute *attempt* as soon as there is a slot, and call *ended* then; not from in here."""
        if switch.active is not None:
            attempt.trace = switch.active.runs.latest(attempt.run)
        if self._needs_only_the_loop(attempt):
            self._presence.begin()
            return OnLoop(self._slots, self._presence, self._limits, attempt, ended)
        name = f"tidewheel-step-{attempt.event.promise_id}"
        task = asyncio.create_task(self.execute(attempt), name=name)
        task.add_done_callback(partial(_tell, attempt, ended))
        return task

    def _needs_only_the_loop(self, attempt: Attempt) -> bool:
        definition, limits = attempt.definition, attempt.event.limits
        if limits is not msgspec.UNSET and limits.heartbeat is not None:
            return False
        if definition is None or attempt.call is not None:
            return kind_of(definition, attempt.call) not in self._lanes
        known = self._on_loop.get(definition.name)
        if known is None:
            known = kind_of(definition) not in self._lanes and not definition.transactional
            self._on_loop[definition.name] = known
        return known

    async def execute(self, attempt: Attempt) -> ev.Result | Committed:
        """Wait for a slot and execute *attempt*."""
        attempt.asked_at = asyncio.get_running_loop().time()
        room = await self.room(kind_of(attempt.definition, attempt.call))
        try:
            return await self.execute_in(room, attempt)
        finally:
            room.leave()

    def execute_in(self, room: Room, attempt: Attempt) -> Coroutine[Any, Any, ev.Result | Committed]:
        """Execute *attempt* in the *room* that was taken for it."""
        execution = self._execute_in(room, attempt)
        return execution if switch.active is None else telling.executed(attempt, execution)

    async def _execute_in(self, room: Room, attempt: Attempt) -> ev.Result | Committed:
        place = room.place
        attempt.has_begun = True
        if attempt.waits_too_long():
            return ev.Result(error=start_timed_out(attempt.event))
        definition = attempt.definition
        if definition is not None and definition.transactional:
            return await self._in_transaction(attempt, place)
        if self._processes is not None and definition is not None and definition.process:
            return await self._in_process(attempt, definition, self._processes)
        return await self._execute(attempt, place)

    async def close(self) -> None:
        """Let go of processes and threads; what still runs in a thread is left to itself."""
        self._presence.end()
        if self._processes is not None:
            await self._processes.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _bounds(self, attempt: Attempt) -> Bounds:
        return Bounds(
            attempt_s=limit_of(attempt.event, attempt.elapsed),
            heartbeat_s=heartbeat_limit(attempt.event),
            limits=self._limits,
        )

    async def _execute(self, attempt: Attempt, place: Place | None) -> ev.Result:
        attempt.loop = asyncio.get_running_loop()
        pulse = attempt.pulse = Pulse(attempt.loop, partial(attempt.on_beat, attempt))
        threads: Threads | None = None if place is None else partial(self._in_thread, place)
        return await execute(attempt, bounds=self._bounds(attempt), pulse=pulse, threads=threads)

    async def _in_process(
        self, attempt: Attempt, definition: TaskDefinition, processes: TaskPool
    ) -> ev.Result:
        """Execute a step in a process, which is killed where the attempt lasts too long."""
        event = attempt.event
        if switch.active is not None:
            telling.begin_attempt(switch.active, attempt)
        place = self._places.get(definition.name)
        if place is None:
            place = self._places[definition.name] = place_of(definition)
        call = Call(
            place=place,
            task=definition.name,
            input=event.input,
            run_id=attempt.run.run_id,
            attempt=attempt.number,
            idempotency_key=attempt.idempotency_key,
            last_heartbeat=attempt.last_heartbeat,
            trace=None if attempt.span is None else attempt.span.trace,
        )
        try:
            async with processes.process() as process:
                pulse = Pulse(asyncio.get_running_loop(), partial(attempt.on_beat, attempt))
                body = process.execute(call, pulse.heard)
                return await bounded(event, body, _result_of_process, self._bounds(attempt), pulse)
        except ProcessFailed as problem:
            return ev.Result(error=problem.error)

    async def _in_transaction(self, attempt: Attempt, place: Place | None) -> ev.Result | Committed:
        """Execute a step whose own writes commit with its result, or not at all."""
        limit_s = limit_of(attempt.event, attempt.elapsed)
        assert attempt.definition is not None
        is_async = inspect.iscoroutinefunction(attempt.definition.fn)
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(limit_s):
                    transaction = await self._begin(stack, is_async=is_async)
            except TimeoutError:
                return ev.Result(error=timed_out(attempt.event, f"did not finish within {limit_s:g} s"))
            attempt.connection = transaction.connection
            result = await self._execute(attempt, place)
            if result.error is not msgspec.UNSET:
                return result  # rolled back; the failure is journaled like any other
            completed = Completed(
                path=attempt.event.promise_id, attempt=attempt.number, result=result, owner=attempt.owner
            )
            answer = await transaction.commit(Append(run=attempt.run, facts=(completed,)))
            return Committed(answer)

    async def _begin(self, stack: contextlib.AsyncExitStack, *, is_async: bool) -> Transaction:
        """Begin a transaction; a store that is away is waited for: the body has not been called yet."""
        pause_s = PAUSE_FIRST_S
        while True:
            try:
                return await stack.enter_async_context(self._store.transaction(is_async=is_async))
            except StoreUnavailable:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _in_thread(self, place: Place, call: Callable[[], Any]) -> Awaitable[Any]:
        assert self._pool is not None
        work = self._pool.submit(contextvars.copy_context().run, call)
        place.keep_until_done(work)
        return asyncio.wrap_future(work)


def _tell(
    attempt: Attempt, ended: Callable[[Attempt, Outcome], None], task: asyncio.Task[ev.Result | Committed]
) -> None:
    if task.cancelled():
        return  # it was given up
    problem = task.exception()
    if problem is None:
        ended(attempt, task.result())
    elif isinstance(problem, Exception):
        ended(attempt, problem)


def _result_of_process(body: asyncio.Future[ev.Result]) -> ev.Result:
    problem = body.exception()
    if isinstance(problem, ProcessFailed):
        return ev.Result(error=problem.error)
    return body.result()
