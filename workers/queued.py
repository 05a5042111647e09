"""Executing a step that came over a queue: wait for room, claim it by its ``InvokeStarted``, execute, report.

The claim is committed before the body begins, however long the store takes over it, so a message that is
delivered twice executes the step once; and after there is room for it, so that a busy worker does not keep it
from others. A delivery is not held for long: after that the step's row in the store is the lease.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from tidewheel.broker.protocol import Delivery
from tidewheel.broker.work_items import TaskHint
from tidewheel.journal import events as ev
from tidewheel.journal.errors import TidewheelError
from tidewheel.sdk.definitions import TaskDefinition
from tidewheel.sdk.failures import error_of
from tidewheel.sdk.hinting import publication_of
from tidewheel.store.append import Append, Appended, Beat, Fact, Hint, Retrying, Started, Verdict
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.store.page import NEAR
from tidewheel.store.protocol import LoadedStep
from tidewheel.store.records import RunRef
from tidewheel.telemetry import switch
from tidewheel.telemetry.context import of_headers
from tidewheel.workers import telling
from tidewheel.workers.lanes import kind_of
from tidewheel.workers.outcomes import attempt_stopped
from tidewheel.workers.runner import Attempt, Committed, Room
from tidewheel.workers.services import Services

logger = logging.getLogger("tidewheel.workers")

PAUSE_MAX_S = 5.0
#: How long a step waits for room in this worker before others are asked.
ROOM_WAIT_S = 10.0
#: How long only others can take such a step.
OTHERS_FIRST_S = 1.0


class QueuedStep:
    """One delivery of one step."""

    def __init__(self, services: Services, delivery: Delivery, hint: TaskHint) -> None:
        self._services = services
        self._delivery = delivery
        self._run = RunRef(hint.namespace, hint.run_id)
        self._hint = hint
        #: What scheduled the step, once its body may have begun.
        self._executing: ev.InvokeScheduled | None = None
        #: The heartbeat that is being written, and what the next one will say.
        self._beating: asyncio.Task[None] | None = None
        self._next_beat: bytes | None = None

    async def follow(self) -> None:
        """Do what the hint asks for, if it still has to be done, and settle the delivery."""
        claim = (self._run, self._hint.path, self._hint.attempt)
        if claim in self._services.claims:  # the hint came twice
            await self._services.settle(self._delivery.acknowledge())
            return
        self._services.claims.add(claim)
        try:
            await self._follow()
        finally:
            self._services.claims.discard(claim)

    async def _follow(self) -> None:
        loaded = await self._services.store.load_step(self._run, self._hint.path)
        if loaded is None or not self._is_for_us(loaded):
            await self._services.settle(self._delivery.acknowledge())
            return
        definition = self._services.app.tasks[loaded.event.function_name]
        room = await self._room_for(definition)
        if room is None:
            await self._leave_to_others(loaded)
        else:
            try:
                await self._take(loaded, definition, room)
            finally:
                room.leave()
        await self._services.settle(self._delivery.acknowledge())

    async def _room_for(self, definition: TaskDefinition) -> Room | None:
        """Wait for room to execute the step, but not for long."""
        runner, kind = self._services.runner, kind_of(definition)
        room = runner.room_at_once(kind)
        if room is not None:
            return room
        try:
            async with asyncio.timeout(ROOM_WAIT_S):
                return await runner.room(kind)
        except TimeoutError:
            return None

    async def _leave_to_others(self, loaded: LoadedStep) -> None:
        """There was no room for long: put the hint at the end of its queue, where others may find it."""
        hint = Hint(run=self._run, queue=loaded.step.queue, path=self._hint.path, attempt=self._hint.attempt)
        self._services.postman.send([publication_of(hint)])
        # As long as this delivery is in hand, the other does not come here.
        await asyncio.sleep(OTHERS_FIRST_S)

    async def _take(self, loaded: LoadedStep, definition: TaskDefinition, room: Room) -> None:
        """Claim the step and execute it, now that there is room for it."""
        if not await self._claim():
            return
        hold = asyncio.get_running_loop().call_later(self._services.config.hold_s, self._hold_no_longer)
        try:
            self._executing = loaded.event
            await self._execute(loaded, definition, room)
        finally:
            hold.cancel()

    def _hold_no_longer(self) -> None:
        self._services.spawn(self._services.settle(self._delivery.acknowledge()))

    async def hand_back(self) -> None:
        """Let another worker execute the step at once; called after ``follow`` was cancelled."""
        if self._executing is not None:
            stopped = attempt_stopped(
                self._executing,
                attempt=self._hint.attempt,
                worker=self._services.worker_id,
                now=self._services.clock.now(),
            )
            await self._services.append(Append(run=self._run, facts=(stopped,)))
        await self._services.settle(self._delivery.release())

    def _is_for_us(self, loaded: LoadedStep) -> bool:
        """Tell whether the step is still wanted, and is one that this worker can execute."""
        self._services.clock.tell(loaded.now)
        if loaded.step.abandoned:
            return False
        if loaded.event.function_name in self._services.app.tasks:
            return True
        logger.warning(
            "queue %s brought task %r of run %s, which app %r does not have",
            loaded.step.queue, loaded.event.function_name, self._run, self._services.app.name,
        )  # fmt: skip
        return False

    async def _claim(self) -> bool:
        """Commit that this worker begins the attempt; False if it is not to be made, or not here."""
        started = Started(path=self._hint.path, attempt=self._hint.attempt, owner=self._services.worker_id)
        (verdict,) = (await self._append_for_sure(Append(run=self._run, facts=(started,)))).verdicts
        # A duplicate is this claim, whose reply was lost: nobody else in here makes it.
        return verdict in (Verdict.WRITTEN, Verdict.DUPLICATE)

    async def _append_for_sure(self, claim: Append) -> Appended:
        """Write *claim*. Once it may have been written that has to be found out: else nobody executes it."""
        pause_s, is_unknown = self._services.config.pause_s, False
        while True:
            try:
                return await self._services.append(claim)
            except CommitUnknown:
                is_unknown = True
            except StoreUnavailable:
                if not is_unknown:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _execute(self, loaded: LoadedStep, definition: TaskDefinition, room: Room) -> None:
        step, event = loaded.step, loaded.event
        attempt = Attempt(
            run=self._run,
            event=event,
            number=self._hint.attempt,
            owner=self._services.worker_id,
            elapsed=(self._services.clock.now() - step.scheduled_at).total_seconds(),
            last_heartbeat=None if step.beat is None else msgspec.json.decode(step.beat),
            definition=definition,
            asked_at=asyncio.get_running_loop().time(),
            on_beat=self._beat,
            cause=None if switch.active is None else telling.cause_of(self._delivery),
        )
        try:
            result = await self._services.runner.execute_in(room, attempt)
        except Exception as problem:  # noqa: BLE001 - the store refused the step's transaction, say
            result = ev.Result(error=error_of(problem))
        if isinstance(result, Committed):
            self._services.follow_up(result.answer)
            return
        await self._report(loaded, self._services.attempt_ended(attempt, result, step.scheduled_at))

    async def _report(self, loaded: LoadedStep, fact: Fact) -> None:
        """Write the outcome. A result waits for a store that is away, but not for one that is too slow."""
        pause_s, taken_s = self._services.config.pause_s, 0.0
        while True:
            try:
                answer = await self._services.append(Append(run=self._run, facts=(fact,)))
                if isinstance(fact, Retrying) and answer.verdicts == [Verdict.WRITTEN]:
                    self._arm_retry(loaded.step.queue, fact)
                return
            except (StoreUnavailable, CommitUnknown) as problem:
                logger.warning("a result of run %s waits for the store: %s", self._run, problem)
                taken_s += problem.taken_s
                fact = self._services.after_failed_write(self._run, loaded.event, fact, taken_s)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _arm_retry(self, queue: str, fact: Retrying) -> None:
        """Hint at a retry that is due soon to the millisecond; the keeper sees to the others."""
        if fact.retry_at is None or fact.retry_at - self._services.clock.now() > NEAR:
            return
        hint = Hint(run=self._run, queue=queue, path=fact.path, attempt=fact.attempt + 1)
        hint.trace = of_headers(self._delivery.message.headers)
        delay = self._services.clock.seconds_until(fact.retry_at)
        asyncio.get_running_loop().call_later(delay, self._services.postman.send, [publication_of(hint)])

    def _beat(self, _attempt: Attempt, details: Any) -> None:
        """Write a heartbeat; those that come while one is being written become one."""
        self._next_beat = msgspec.json.encode(details)
        if self._beating is None or self._beating.done():
            self._beating = self._services.spawn(self._write_beats())

    async def _write_beats(self) -> None:
        while self._next_beat is not None:
            beat = Beat(path=self._hint.path, attempt=self._hint.attempt, details=self._next_beat)
            self._next_beat = None
            try:
                await self._services.append(Append(run=self._run, facts=(beat,)))
            except TidewheelError as problem:
                logger.warning("a heartbeat of run %s was not written: %s", self._run, problem)
                return
