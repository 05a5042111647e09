"""Group commit: appends that come while a transaction is under way share the next one.

A lost reply to COMMIT is resolved here: the same appends are repeated until the store says what
became of them, within a budget. Each is repeated by itself, so that one whose run is held up does not hold up
the others. Whoever gets an error does not know, and must look again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from tidewheel.store.append import Append, Appended
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.store.protocol import Store
from tidewheel.workers.clock import StoreClock

logger = logging.getLogger("tidewheel.workers")

#: How often a commit of unknown outcome is repeated before its callers are told so.
REPEATS_MAX = 6
REPEAT_FIRST_S = 0.05


class Writer:
    """The one way from a worker to the store's ``append``; *batch_max* of them share a transaction."""

    def __init__(self, store: Store, clock: StoreClock, batch_max: int) -> None:
        self._store = store
        self._batch_max = batch_max
        self._clock = clock
        self._waiting: list[tuple[Append, asyncio.Future[Appended]]] = []
        self._flushing: asyncio.Task[None] | None = None
        #: Appends that are being repeated.
        self._repeating: set[asyncio.Task[None]] = set()
        #: Transactions and appends so far.
        self.commits = 0
        self.appends = 0

    async def append(self, request: Append) -> Appended:
        """Write *request*, in the order of the calls, and return what became of it."""
        return await self.submit(request)

    def submit(self, request: Append) -> asyncio.Future[Appended]:
        """Write *request* in its turn; what is returned will say what became of it."""
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush(), name="tidewheel-writer")
        return answer

    async def idle(self) -> None:
        """Return when everything that was asked for has been answered."""
        while busy := {*self._repeating, *([self._flushing] if self._flushing is not None else [])}:
            await asyncio.wait(busy)

    async def _flush(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[: self._batch_max], self._waiting[self._batch_max :]
                await self._commit(group)
        finally:
            self._flushing = None

    async def _commit(self, group: Sequence[tuple[Append, asyncio.Future[Appended]]]) -> None:
        try:
            answers = await self._store.append([request for request, _ in group])
        except CommitUnknown as problem:
            logger.warning("a commit's reply was lost, asking again: %s", problem)
            for request, answer in group:
                repeating = asyncio.create_task(
                    self._repeat(request, answer, problem), name="tidewheel-writer"
                )
                self._repeating.add(repeating)
                repeating.add_done_callback(self._repeating.discard)
            return
        except Exception as problem:  # noqa: BLE001 - every caller is told
            if len(group) > 1 and not isinstance(problem, StoreUnavailable):
                for one in group:  # one of them may be what the store cannot take
                    await self._commit([one])
                return
            for _, answer in group:
                if not answer.done():
                    answer.set_exception(problem)
            return
        self.commits += 1
        self.appends += len(group)
        self._clock.tell(answers[-1].now)
        for (_, answer), appended in zip(group, answers, strict=True):
            if not answer.done():
                answer.set_result(appended)

    async def _repeat(
        self, request: Append, answer: asyncio.Future[Appended], unknown: CommitUnknown
    ) -> None:
        """Find out what became of *request*; a try that wrote nothing says nothing of the one before."""
        for repeat in range(REPEATS_MAX):
            try:
                (appended,) = await self._store.append([request])
            except CommitUnknown as problem:
                unknown = problem
            except StoreUnavailable as problem:
                logger.info("run %s: still not known: %s", request.run.run_id, problem)
            except Exception as problem:  # noqa: BLE001 - the caller is told
                if not answer.done():
                    answer.set_exception(problem)
                return
            else:
                self.commits += 1
                self.appends += 1
                self._clock.tell(appended.now)
                if not answer.done():
                    answer.set_result(appended)
                return
            await asyncio.sleep(REPEAT_FIRST_S * 2**repeat)
        if not answer.done():
            answer.set_exception(unknown)
