"""Group commit: appends that come while a transaction is under way share the next one.

A lost reply to COMMIT is resolved here: the same appends are repeated until the store says what
became of them, within a budget. Whoever gets an error does not know, and must look again.
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

#: Appends in one transaction.
BATCH_MAX = 64
#: How often a commit of unknown outcome is repeated before its callers are told so.
REPEATS_MAX = 6
REPEAT_FIRST_S = 0.05


class Writer:
    """The one way from a worker to the store's ``append``."""

    def __init__(self, store: Store, clock: StoreClock) -> None:
        self._store = store
        self._clock = clock
        self._waiting: list[tuple[Append, asyncio.Future[Appended]]] = []
        self._flushing: asyncio.Task[None] | None = None
        #: Transactions and appends so far.
        self.commits = 0
        self.appends = 0

    async def append(self, request: Append) -> Appended:
        """Write *request*, in the order of the calls, and return what became of it."""
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush(), name="tidewheel-writer")
        return await answer

    async def idle(self) -> None:
        """Return when everything that was asked for has been answered."""
        while self._flushing is not None:
            await asyncio.wait([self._flushing])

    async def _flush(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
                await self._commit(group)
        finally:
            self._flushing = None

    async def _commit(self, group: Sequence[tuple[Append, asyncio.Future[Appended]]]) -> None:
        requests = [request for request, _ in group]
        try:
            answers = await self._append_for_sure(requests)
        except Exception as problem:  # noqa: BLE001 - every caller is told
            if len(group) > 1 and not isinstance(problem, CommitUnknown | StoreUnavailable):
                for one in group:  # one of them may be what the store cannot take
                    await self._commit([one])
                return
            for _, answer in group:
                if not answer.done():
                    answer.set_exception(problem)
            return
        self.commits += 1
        self.appends += len(group)
        for (_, answer), appended in zip(group, answers, strict=True):
            self._clock.tell(appended.now)
            if not answer.done():
                answer.set_result(appended)

    async def _append_for_sure(self, requests: Sequence[Append]) -> list[Appended]:
        unknown: CommitUnknown | None = None
        for repeat in range(REPEATS_MAX):
            try:
                return await self._store.append(requests)
            except CommitUnknown as problem:
                unknown = problem
            except StoreUnavailable:
                if unknown is None:
                    raise  # nothing was written
            logger.warning("a commit's reply was lost, asking again: %s", unknown)
            await asyncio.sleep(REPEAT_FIRST_S * 2**repeat)
        assert unknown is not None
        raise unknown
