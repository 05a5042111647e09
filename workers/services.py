"""What the parts of one worker share."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections import deque
from collections.abc import Awaitable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET

from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.protocol import Broker, Delivery
from tidewheel.journal.events import InvokeScheduled, Result
from tidewheel.replay.execution import Entropy
from tidewheel.sdk.app import App
from tidewheel.sdk.limits import Limits
from tidewheel.store.append import Append, Appended, Completed, Fact, Retrying
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef
from tidewheel.workers import outcomes
from tidewheel.workers.clock import StoreClock
from tidewheel.workers.config import WorkerConfig
from tidewheel.workers.entropy import SecureEntropy
from tidewheel.workers.late_starts import LateStarts
from tidewheel.workers.postman import Postman
from tidewheel.workers.run_queue import RunQueue
from tidewheel.workers.runner import Attempt, Runner
from tidewheel.workers.turns import Turns
from tidewheel.workers.write_budget import StateStoreConfig, after_failed_write
from tidewheel.workers.writer import Writer

logger = logging.getLogger("tidewheel.workers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The store, the broker, the code, and what stands between them."""

    worker_id: str
    namespace: str
    app: App
    store: Store
    broker: Broker
    config: WorkerConfig
    state_store: StateStoreConfig
    limits: Limits
    clock: StoreClock
    writer: Writer
    postman: Postman
    #: Lets queued runs begin when others have ended.
    run_queue: RunQueue
    runner: Runner
    #: Lets sessions take their turns.
    turns: Turns
    #: Journals the start of inline steps that go on for long.
    late_starts: LateStarts
    entropy: Entropy
    #: Makes fence tokens, and jitter.
    chance: SecureEntropy
    #: Set once the worker was asked to stop: from then on it begins nothing new.
    stopping: asyncio.Event
    #: Attempts of queued steps that are being claimed or executed here.
    claims: set[tuple[RunRef, str, int]] = field(default_factory=set)
    _background: set[asyncio.Task[Any]] = field(default_factory=set)
    _done_with: deque[Delivery] = field(default_factory=deque)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do *work* next to everything else, and keep it from being forgotten half done."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def attempt_ended(
        self, attempt: Attempt, result: Result, scheduled_at: dt.datetime
    ) -> Completed | Retrying:
        """Return the fact to write for an attempt that was executed here."""
        event, number, owner = attempt.event, attempt.number, self.worker_id
        if result.error is UNSET:  # what most come to, and it takes no clock and no chance
            return Completed(path=event.promise_id, attempt=number, result=result, owner=owner)
        return outcomes.attempt_ended(
            event,
            attempt=number,
            result=result,
            scheduled_at=scheduled_at,
            now=self.clock.now(),
            jitter=self.chance.random(),
            owner=owner,
        )

    def after_failed_write(self, run: RunRef, event: InvokeScheduled, fact: Fact, taken_s: float) -> Fact:
        """Return what is to be written of *fact* next; a result over the budget is not: its attempt fails."""
        instead = after_failed_write(self.state_store, event, fact, taken_s, self.clock.now())
        if instead is not fact:
            logger.warning(
                "run %s: an attempt of %s fails: the store took %.1f s over its result, and did not write it",
                run.run_id, event.function_name, taken_s,
            )  # fmt: skip
        return instead

    def acknowledge(self, delivery: Delivery) -> None:
        """Let go of a delivery: it is done with. Many are told of one after the other, by one task."""
        self._done_with.append(delivery)
        if len(self._done_with) == 1:
            self.spawn(self._acknowledge())

    async def _acknowledge(self) -> None:
        while self._done_with:
            await self.settle(self._done_with[0].acknowledge())
            self._done_with.popleft()

    async def release(self, deliveries: Iterable[Delivery]) -> None:
        """Give deliveries back, for others to take."""
        for delivery in deliveries:
            await self.settle(delivery.release())

    async def settle(self, saying: Awaitable[None]) -> None:
        """Say what becomes of a delivery. If the broker does not hear it, it delivers again: harmless."""
        try:
            await saying
        except BrokerUnavailable as problem:
            logger.warning("a delivery was not settled and will come again: %s", problem)

    async def append(self, request: Append) -> Appended:
        """Write, then publish what the commit owes."""
        answer = await self.writer.append(request)
        self.follow_up(answer)
        return answer

    def follow_up(self, answer: Appended) -> None:
        """Publish what a commit owes."""
        if answer.hints or answer.ended:
            self.postman.follow_up(answer)
            for ended in answer.ended:
                if ended.frees_place:
                    self.run_queue.stir()
