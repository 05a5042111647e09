"""The keeper: wakes what sleeps and was forgotten. Any number of processes may hold this role.

Whatever is due is claimed in the store, a little at a time; a keeper that dies with a claim leaves it
to be due again soon. Nothing here is needed for a result to be right, only for it to come: it tells
workers of timers that are due, fires those that nobody fired, repeats lost hints, gives up dead workers,
ends steps that are overdue, lets queued runs begin.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from tidewheel.broker.errors import BrokerUnavailable, Unroutable
from tidewheel.broker.message import Publication
from tidewheel.broker.protocol import Broker
from tidewheel.broker.topology import work_queue
from tidewheel.journal.errors import TidewheelError
from tidewheel.sdk.hinting import publication_of, publications
from tidewheel.store.append import Append, Fired, Hint
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.store.protocol import Due, DueStep, DueTimer, Store
from tidewheel.store.records import RunRef
from tidewheel.workers.config import DEFAULT_QUEUE, KeeperConfig
from tidewheel.workers.dead_letters import DeadLetters
from tidewheel.workers.departed import Departed
from tidewheel.workers.lifeline import is_gone
from tidewheel.workers.overdue import Verdict, judge
from tidewheel.workers.parked import ParkedRuns
from tidewheel.workers.run_queue import RunQueue

logger = logging.getLogger("tidewheel.keeper")

#: A queue with more messages than this explains why a hint was not followed yet. So does one that has a
#: message for each that waits; but not for ever, since one of them may be lost in a queue that is never
#: empty.
BACKLOG_MIN = 1_000
BACKLOG_TIMES = 3
#: Appends in one transaction.
GROUP_MAX = 100
#: Steps that are looked at side by side.
LOOKS_MAX = 50
#: How often the rarer duties are done.
ROUNDS_S = 1.0
RETENTION_ROUND_S = 60.0
#: How often it is looked for owners of runs that nobody knows (any more).
OWNERS_ROUND_S = 30.0
#: Never sleeps shorter than this, whatever is due.
NAP_MIN_S = 0.002
#: Not longer than this after steps were seen to.
SOON_S = 0.1


class Keeper:
    """See the module."""

    def __init__(
        self, store: Store, broker: Broker, *, namespace: str = "default", config: KeeperConfig | None = None
    ) -> None:
        self.config = config or KeeperConfig()
        self._store = store
        self._broker = broker
        self._namespace = namespace
        self._dead_letters = DeadLetters(store, broker, namespace, self.config)
        self._parked = ParkedRuns(store, broker, namespace)
        self._run_queue = RunQueue(store, self._publish)
        self._departed = Departed()
        #: Set when something has become due that the present sleep does not know of.
        self._stirred = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to look after things."""
        duties = (
            self._for_ever(self._keep_due, 0.0),
            self._for_ever(self._keep_rounds, ROUNDS_S),
            self._for_ever(self._keep_owners, OWNERS_ROUND_S),
            self._for_ever(self._keep_retention, RETENTION_ROUND_S),
        )
        self._tasks = [asyncio.create_task(duty, name="tidewheel-keeper") for duty in duties]

    async def stop(self) -> None:
        """Let go; what was claimed is due again soon. Safe to call twice."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        await self._dead_letters.stop()

    async def _for_ever(self, duty: Callable[[], Awaitable[None]], pause_s: float) -> None:
        while True:
            try:
                await duty()
            except TidewheelError as problem:
                logger.warning("the keeper tries again soon: %s", problem)
                await asyncio.sleep(self.config.poll_s)
            except Exception:
                logger.exception("the keeper stumbled, and goes on")
                await asyncio.sleep(self.config.poll_s)
            await asyncio.sleep(pause_s)

    # What is due

    async def _keep_due(self) -> None:
        due = await self._store.claim_due(limit=self.config.batch)
        await self.see_to(due)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._nap_s(due)):
                await self._stirred.wait()
        self._stirred.clear()

    def _nap_s(self, due: Due) -> float:
        """Return how long nothing is due, as far as is known."""
        if max(len(due.timers), len(due.steps), len(due.hints)) >= self.config.batch:
            return NAP_MIN_S
        # Steps that were seen to may be due again before what was due next: a lost one is tried again soon.
        nap_s = min(self.config.poll_s, SOON_S) if due.steps else self.config.poll_s
        if due.next_at is not None:
            nap_s = min(nap_s, (due.next_at - due.now).total_seconds())
        return max(nap_s, NAP_MIN_S)

    async def see_to(self, due: Due) -> None:
        """Do what was claimed."""
        await self._see_to_timers(due.timers, due.now)
        await self._hint(due.hints)
        for start in range(0, len(due.steps), LOOKS_MAX):
            # Together, so that their appends share a transaction: a dead worker leaves many at once.
            looks = (self._look_at_safely(step, due.now) for step in due.steps[start : start + LOOKS_MAX])
            found = await asyncio.gather(*looks, return_exceptions=True)
            await self._hint([hint for hint in found if isinstance(hint, Hint)])
            for problem in found:
                if isinstance(problem, BaseException):
                    raise problem

    async def _hint(self, hints: Sequence[Hint]) -> None:
        await self._publish([publication_of(hint) for hint in await self._without_backlog(hints)])

    async def _see_to_timers(self, timers: Sequence[DueTimer], now: dt.datetime) -> None:
        """Have timers fired by the workers of their runs, who write that with what comes of it."""
        overdue: list[DueTimer] = []
        first: dict[RunRef, Hint] = {}
        again: dict[RunRef, Hint] = {}
        for timer in timers:
            late_s = (now - timer.fire_at).total_seconds()
            if timer.is_parked or late_s >= self.config.fires_after_s:
                overdue.append(timer)
            else:
                times = int(late_s)  # it is claimed again after a second, then after as long as it is late
                hint = Hint(run=timer.run, queue=timer.queue, alone=timer.alone, times=times)
                (again if times else first)[timer.run] = hint
        await self._fire(overdue)
        await self._publish([publication_of(hint) for hint in first.values()])
        await self._hint(list(again.values()))

    async def _fire(self, timers: Sequence[DueTimer]) -> None:
        for start in range(0, len(timers), GROUP_MAX):
            group = timers[start : start + GROUP_MAX]
            answers = await self._store.append(
                [Append(run=timer.run, facts=(Fired(path=timer.path),)) for timer in group]
            )
            await self._publish(publications(answers))

    async def _look_at_safely(self, due: DueStep, now: dt.datetime) -> Hint | None:
        """One step that cannot be seen to, as of an unreadable journal, must not hold up the others."""
        try:
            return await self._look_at(due, now)
        except (StoreUnavailable, CommitUnknown):
            raise
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is this step's alone
            logger.warning("step %s of run %s: %s", due.step.path, due.run, problem)
            return None

    async def _look_at(self, due: DueStep, now: dt.datetime) -> Hint | None:
        """Find out what a step needs: a hint, the end it has earned, or nothing."""
        verdict = judge(due, now)
        if isinstance(verdict, Hint) or verdict is None:
            return verdict
        return await self._end(due, verdict, now)

    async def _end(self, due: DueStep, verdict: Verdict, now: dt.datetime) -> Hint | None:
        loaded = await self._store.load_step(due.run, due.step.path)
        if loaded is None:
            return None
        fact = verdict(loaded, now)
        (answer,) = await self._store.append([Append(run=due.run, facts=(fact,))])
        await self._publish(publications([answer]))
        return None

    async def _without_backlog(self, hints: Sequence[Hint]) -> list[Hint]:
        """Leave out hints whose first edition still waits in its queue, as far as that can be told."""
        waiting = Counter(work_queue(hint.run.namespace, hint.queue) for hint in hints)
        depths: dict[str, int] = {}
        for queue in waiting:
            with contextlib.suppress(BrokerUnavailable):
                depths[queue] = await self._broker.depth(queue)
        wanted = []
        for hint in hints:
            queue = work_queue(hint.run.namespace, hint.queue)
            depth = depths.get(queue, 0)
            is_there = depth >= waiting[queue] and hint.times < BACKLOG_TIMES
            if depth < BACKLOG_MIN and not is_there:
                wanted.append(hint)
        return wanted

    async def _publish(self, wanted: Sequence[Publication]) -> None:
        if not wanted:
            return
        try:
            await self._broker.publish(wanted)
        except Unroutable as problem:
            logger.info("nobody serves a queue: %s", problem)
        except BrokerUnavailable as problem:
            logger.warning("%d hints were not published, and will be later: %s", len(wanted), problem)

    # Rounds

    async def _keep_rounds(self) -> None:
        """See to workers and to runs that are stuck, then let queued runs begin, whatever became of that."""
        try:
            await self._keep_workers()
        finally:
            await self._run_queue.round()

    async def _keep_workers(self) -> None:
        """Give up dead workers, hear of dead letters, wake parked runs whose code has come."""
        workers = await self._store.workers()
        now = await self._store.now()
        dead = [worker.worker_id for worker in workers if worker.alive_until <= now or is_gone(worker)]
        if dead:
            logger.warning("taken for dead: %s", ", ".join(dead))
        gone = dead + self._departed.round([worker.worker_id for worker in workers])
        if gone:
            await self._store.give_up(gone)
            self._stirred.set()  # what they were executing is due now
        alive = [worker for worker in workers if worker.worker_id not in dead]
        ours = [worker for worker in workers if worker.namespace == self._namespace]
        queues = {DEFAULT_QUEUE, *(queue for worker in ours for queue in worker.queues)}
        await self._dead_letters.listen(queues)
        await self._parked.retry(alive)

    async def _keep_owners(self) -> None:
        """Find runs whose worker was given up before it took them, and died before it said that it lives."""
        lost = await self._store.lost_owners()
        if lost:
            logger.warning("runs of workers that are not registered: %s", ", ".join(lost))
            await self._store.give_up(lost)
            self._stirred.set()

    async def _keep_retention(self) -> None:
        """Let the store see to itself, then delete what ended long ago, a batch at a time."""
        if not self.config.retention_days:
            await self._store.tend(self._namespace, ended_before=None)
            return
        before = await self._store.now() - dt.timedelta(days=self.config.retention_days)
        count = await self._store.tend(self._namespace, ended_before=before)
        if count:
            logger.info(
                "deleted %d runs with their partitions, all ended before %s", count, before.isoformat()
            )
        while True:
            count = await self._store.purge(self._namespace, ended_before=before, limit=self.config.batch)
            if count:
                logger.info("deleted %d runs that ended before %s", count, before.isoformat())
            if count < self.config.batch:
                return
