"""A worker: takes work items from its queues and sees each of them through.

Starting, it declares its queues, announces itself and begins to consume. Stopping, it takes nothing
new, lets what is in hand finish within its grace, gives the rest back, and leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Any

from tidewheel.broker.errors import PoisonMessage
from tidewheel.broker.protocol import Broker, Delivery
from tidewheel.broker.topology import (
    COMMANDS,
    alone_queue,
    commands_topology,
    sticky_queue,
    sticky_topology,
    work_queue,
    work_topology,
)
from tidewheel.broker.work_items import RunHint, RunsEnded, TaskHint, read_item
from tidewheel.journal.errors import TidewheelError
from tidewheel.sdk.app import App
from tidewheel.sdk.limits import Limits
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef
from tidewheel.telemetry import switch
from tidewheel.workers import telling
from tidewheel.workers.clock import StoreClock
from tidewheel.workers.commands import Commands
from tidewheel.workers.config import WorkerConfig
from tidewheel.workers.entropy import SecureEntropy
from tidewheel.workers.lanes import capacity
from tidewheel.workers.late_starts import LateStarts
from tidewheel.workers.lifeline import Lifeline, new_worker_id
from tidewheel.workers.postman import Postman
from tidewheel.workers.queued import QueuedStep
from tidewheel.workers.run_queue import RunQueue
from tidewheel.workers.runner import Runner
from tidewheel.workers.services import Services
from tidewheel.workers.session import Session
from tidewheel.workers.task_places import check_processes, module_of
from tidewheel.workers.task_pool import TaskPool
from tidewheel.workers.turns import Turns
from tidewheel.workers.write_budget import StateStoreConfig
from tidewheel.workers.writer import Writer

logger = logging.getLogger("tidewheel.workers")

#: The longest pause between two attempts to reach the broker.
RECONNECT_MAX_S = 1.0
#: How long a turn may go on that was under way when the grace ended.
HAND_BACK_S = 1.0


class Worker:
    """Executes the runs of one namespace that an app has the code of."""

    def __init__(  # noqa: PLR0913 - what a worker is made of, and three keywords for tests
        self,
        app: App,
        store: Store,
        broker: Broker,
        *,
        namespace: str = "default",
        config: WorkerConfig | None = None,
        state_store: StateStoreConfig | None = None,
        limits: Limits | None = None,
        secret: bytes | None = None,
        threads: bool = True,
        worker_id: str | None = None,
    ) -> None:
        """The last three are for tests.

        *secret* makes chance repeatable, without *threads* plain functions run in place, in no process
        either, and *worker_id* is a name that no other process has.
        """
        self.config = config or WorkerConfig()
        limits = limits or Limits()
        self.worker_id = worker_id or new_worker_id()
        clock = StoreClock()
        postman = Postman(broker)
        self.services = Services(
            worker_id=self.worker_id,
            namespace=namespace,
            app=app,
            store=store,
            broker=broker,
            config=self.config,
            state_store=state_store or StateStoreConfig(),
            limits=limits,
            clock=clock,
            writer=Writer(store, clock),
            turns=Turns(clock, store.flush, self.config.sweep),
            postman=postman,
            run_queue=RunQueue(store, postman.deliver),
            runner=Runner(
                store,
                slots=self.config.slots,
                threads=self.config.threads if threads else 0,
                limits=limits,
                processes=_processes(app, self.config, limits) if threads else None,
            ),
            late_starts=LateStarts(self.config.started_after_s),
            entropy=SecureEntropy(secret),
            chance=SecureEntropy(None if secret is None else secret + b"chance"),
            stopping=asyncio.Event(),
        )
        self._stopping = self.services.stopping
        self._lifeline = Lifeline(store, app, self.config, worker_id=self.worker_id, namespace=namespace)
        self._sessions: OrderedDict[RunRef, Session] = OrderedDict()
        self._queued: dict[QueuedStep, asyncio.Task[None]] = {}
        self._commands = Commands(self.services, self._session)
        self._drained = asyncio.Event()
        #: Open unless a run is being tried alone.
        self._gate = asyncio.Event()
        self._gate.set()
        self._chores: list[asyncio.Task[None]] = []
        #: Those of them that wait for the next delivery, in the order in which they came.
        self._listening: dict[asyncio.Task[Any], None] = {}
        #: The queues that have to be consumed, and those that are.
        self._to_hear: frozenset[str] = frozenset()
        self._heard: set[str] = set()
        telling.observe(self)

    # Starting and stopping

    async def start(self) -> None:
        """Begin to work; returns when everything is declared and announced."""
        namespace, queues = self.services.namespace, self.config.queues
        check_processes(self.services.app)
        await self._declare()
        self.services.clock.tell(await self.services.store.now())
        await self._lifeline.announce()
        work = [work_queue(namespace, queue) for queue in queues]
        # What this worker could only let wait is left for others.
        room = capacity(
            self.services.app,
            slots=self.config.slots,
            threads=self.config.threads,
            processes=self.config.task_processes_max,
        )
        consumed = dict.fromkeys([*work, COMMANDS], min(self.config.prefetch, room))
        consumed[sticky_queue(self.worker_id)] = self.config.prefetch
        consumed |= dict.fromkeys(map(alone_queue, work), 1)
        self._to_hear = frozenset(consumed)
        self._chores = [
            asyncio.create_task(self._consume(name, prefetch), name=f"consume-{name}")
            for name, prefetch in consumed.items()
        ]
        self._chores.append(asyncio.create_task(self._lifeline.renew_for_ever(), name="lifeline"))

    async def stop(self, grace_s: float | None = None) -> None:
        """Take nothing new, finish or hand back what is in hand, and leave. Safe to call twice."""
        if self._drained.is_set():
            return
        self._stop_listening()
        self._gate.set()
        grace_s = self.config.grace_s if grace_s is None else grace_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._finish_work()
        await self._hand_back()
        await self.services.writer.idle()
        await self.services.run_queue.idle()
        await self.services.postman.idle()
        self._drained.set()
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        with contextlib.suppress(TidewheelError):
            await self._lifeline.end()
            await self.services.broker.delete_queue(sticky_queue(self.worker_id))
        await self.services.runner.close()

    async def _finish_work(self) -> None:
        """Wait until nothing is under way; runs that wait for something outside are not."""
        while True:
            busy = [session for session in self._sessions.values() if session.is_busy()]
            if not busy and not self._queued:
                return
            await asyncio.sleep(0.02)

    async def _hand_back(self) -> None:
        for step, task in list(self._queued.items()):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            with contextlib.suppress(TidewheelError):
                await step.hand_back()
        await asyncio.gather(*(self._hand_back_run(session) for session in self._sessions.values()))
        self._sessions.clear()

    async def _hand_back_run(self, session: Session) -> None:
        try:
            if session.is_idle():
                session.retire()
            else:
                await session.hand_back(HAND_BACK_S)
        except TidewheelError as problem:
            logger.warning("run %s could not be handed back: %s", session.run, problem)

    async def _declare(self) -> None:
        namespace, queues = self.services.namespace, self.config.queues
        await self.services.broker.declare(work_topology(namespace, queues))
        await self.services.broker.declare(sticky_topology(namespace, self.worker_id, queues[0]))
        await self.services.broker.declare(commands_topology())

    # Consuming

    async def hears(self) -> str | None:
        """Check that all queues are consumed; return which are not."""
        deaf = sorted(self._to_hear - self._heard)
        return f"not consuming {', '.join(deaf)}" if deaf else None

    async def _consume(self, queue: str, prefetch: int) -> None:
        """Receive from *queue* for ever; a broker that goes away is waited for."""
        pause_s = self.config.pause_s
        while not self._stopping.is_set():
            try:
                async with self.services.broker.consume(queue, prefetch=prefetch) as deliveries:
                    pause_s = self.config.pause_s
                    self._heard.add(queue)
                    await self._receive(deliveries)
                    if self._stopping.is_set():
                        await deliveries.stop()  # what was fetched ahead is for others, who have time
                        await self._drained.wait()
            except Exception as problem:  # noqa: BLE001 - a worker that hears nothing must not look alive
                logger.warning("%s could not be consumed, and is again soon: %s", queue, problem)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RECONNECT_MAX_S)
                with contextlib.suppress(TidewheelError):
                    await self._declare()  # the queue itself may be gone
            finally:
                self._heard.discard(queue)

    async def _receive(self, deliveries: AsyncIterator[Delivery]) -> None:
        """Take one delivery after the other, until there are no more or the worker is to stop."""
        me = asyncio.current_task()
        assert me is not None
        while not self._stopping.is_set():
            self._listening[me] = None
            try:
                delivery = await anext(deliveries, None)
            except asyncio.CancelledError:
                if self._stopping.is_set() and me.uncancel() == 0:
                    return  # by ``_stop_listening``, and by nobody else
                raise
            finally:
                self._listening.pop(me, None)
            if delivery is None:
                return
            await self._gate.wait()
            await self._take(delivery)

    def _stop_listening(self) -> None:
        """Interrupt those who wait for a delivery: that costs none. Who has one sees to it first."""
        if self._stopping.is_set():
            return  # one who is interrupted twice would take it for the end of everything
        self._stopping.set()
        for listener in self._listening:
            listener.cancel()

    async def _take(self, delivery: Delivery) -> None:
        """Begin with one work item; it goes on next to the others."""
        if delivery.queue == COMMANDS:
            await self._commands.take(delivery)
            return
        try:
            item = read_item(delivery.message)
            if isinstance(item, RunsEnded):
                raise PoisonMessage("a notice of ended runs is not work")
            if item.namespace != self.services.namespace:
                message = (
                    f"it is for namespace {item.namespace!r}, this worker serves {self.services.namespace!r}"
                )
                raise PoisonMessage(message)
        except PoisonMessage as problem:
            logger.warning("a message on %s is a dead letter: %s", delivery.queue, problem)
            await delivery.bury(str(problem))
            return
        match item:
            case RunHint(alone=True):
                self.services.spawn(self._try_alone(delivery, RunRef(item.namespace, item.run_id)))
            case RunHint():
                run = RunRef(item.namespace, item.run_id)
                if switch.active is not None:
                    telling.delivered(switch.active, run, delivery)
                self._session(run).deliver(delivery, bytes(item.sketch))
            case TaskHint():
                step = QueuedStep(self.services, delivery, item)
                self._queued[step] = asyncio.create_task(self._follow(step, delivery))

    async def _follow(self, step: QueuedStep, delivery: Delivery) -> None:
        try:
            await step.follow()
        except Exception as problem:  # noqa: BLE001 - whatever it is, the delivery must not stay in hand
            logger.warning("a step was not executed, and is given back: %s", problem)
            await asyncio.sleep(self.config.pause_s)
            await self.services.settle(delivery.release())
        finally:
            self._queued.pop(step, None)

    async def _try_alone(self, delivery: Delivery, run: RunRef) -> None:
        """Activate a run that workers died with, when nothing else is under way that could die with it."""
        if not self._gate.is_set():
            await delivery.release()  # one at a time
            return
        self._gate.clear()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.config.hold_s / 2):
                    await self._finish_work()
            logger.warning("run %s is tried alone: workers died with it before", run)
            session = self._session(run)
            session.deliver(delivery)
            await session.finish()
        finally:
            self._gate.set()

    # Sessions

    def _session(self, run: RunRef) -> Session:
        session = self._sessions.get(run)
        if session is None:
            session = self._sessions[run] = Session(self.services, run, self._on_idle)
        self._sessions.move_to_end(run)
        return session

    def _on_idle(self, session: Session) -> None:
        """Keep the runs used last in memory, up to a bound."""
        if session.is_empty():
            self._sessions.pop(session.run, None)
            session.retire()
        excess = len(self._sessions) - self.config.cache
        if excess <= 0:
            return
        for oldest in list(self._sessions.values()):
            if oldest.is_idle():
                oldest.retire()
                del self._sessions[oldest.run]
                excess -= 1
                if excess <= 0:
                    return

    def cached(self) -> int:
        """How many runs are kept in memory."""
        return len(self._sessions)


def _processes(app: App, config: WorkerConfig, limits: Limits) -> TaskPool:
    home = None if app.home is None else module_of(app.home)
    return TaskPool(config.task_processes_max, home=home, result_max_bytes=limits.payload_max_bytes)
