"""The one way from a worker to the store's appends.

A lost reply to COMMIT is resolved here: the same append is repeated until the store says what became of it,
a few times, and by itself, so that one whose run is held up does not hold up others. Whoever gets an
error does not know, and must look again. It is also told how long the store had the write (``taken_s``),
which is next to nothing where it could not be reached.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from typing import TypeVar

from tidewheel.store.append import Append, Appended
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.store.protocol import Answered, Store
from tidewheel.telemetry import switch
from tidewheel.workers import telling
from tidewheel.workers.clock import StoreClock

logger = logging.getLogger("tidewheel.workers")

#: How often a commit of unknown outcome is repeated before its caller is told so.
REPEATS_MAX = 6
REPEAT_FIRST_S = 0.05


class Writer:
    """Passes appends on to *store*, and what it says of the time to *clock*."""

    def __init__(self, store: Store, clock: StoreClock) -> None:
        self._store = store
        self.clock = clock
        self._under_way = 0
        #: What the store last said of the time.
        self._told: dt.datetime | None = None
        self._at_rest: asyncio.Event | None = None
        #: Appends that are being repeated.
        self._repeating: set[asyncio.Task[None]] = set()
        #: How many were answered so far.
        self.appends = 0
        self._group = telling.Group()

    def submit(self, request: Append, answered: Answered) -> None:
        """Write *request*, and call *answered* once, not from in here."""
        self._under_way += 1
        if switch.active is not None:
            answered = telling.Appending(switch.active, self._group, request, answered)
        self._store.submit(request, _Asked(self, request, answered, asyncio.get_running_loop().time()))

    async def append(self, request: Append) -> Appended:
        """Write *request* and return what became of it."""
        done: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()

        def answered(answer: Appended | Exception) -> None:
            if done.done():
                return  # whoever asked has left
            if isinstance(answer, Exception):
                done.set_exception(answer)
            else:
                done.set_result(answer)

        self.submit(request, answered)
        return await done

    async def idle(self) -> None:
        """Return when everything that was asked for has been answered."""
        while self._under_way:
            self._at_rest = self._at_rest or asyncio.Event()
            await self._at_rest.wait()

    def settle(self, answer: Appended | Exception) -> None:
        """One of them was answered."""
        # Those of one transaction were written at one moment.
        if not isinstance(answer, Exception) and answer.now is not self._told:
            self._told = answer.now
            self.clock.tell(answer.now)
        self.appends += 1
        self._under_way -= 1
        if not self._under_way and self._at_rest is not None:
            self._at_rest.set()
            self._at_rest = None

    def find_out(self, asked: _Asked, unknown: CommitUnknown) -> None:
        """The reply to a commit was lost: ask again, until the store says what became of it."""
        logger.warning("a commit's reply was lost, asking again: %s", unknown)
        repeating = asyncio.create_task(self._repeat(asked, unknown), name="tidewheel-writer")
        self._repeating.add(repeating)
        repeating.add_done_callback(self._repeating.discard)

    async def _repeat(self, asked: _Asked, unknown: CommitUnknown) -> None:
        """Find out what became of it; a try that wrote nothing says nothing of the one before."""
        request, loop = asked.request, asyncio.get_running_loop()
        for repeat in range(REPEATS_MAX):
            asked_s = loop.time()
            try:
                (appended,) = await self._store.append([request])
            except CommitUnknown as problem:
                unknown = problem
            except StoreUnavailable as problem:
                logger.info("run %s: still not known: %s", request.run, problem)
            except Exception as problem:  # noqa: BLE001 - the caller is told
                asked.conclude(problem)
                return
            else:
                asked.conclude(appended)
                return
            asked.taken_s += loop.time() - asked_s
            await asyncio.sleep(REPEAT_FIRST_S * 2**repeat)
        asked.conclude(_timed(unknown, asked.taken_s))


class _Asked:
    """An append that is under way, and who waits for its answer: there is one for each, so it is small."""

    __slots__ = ("_answered", "_asked_s", "_writer", "request", "taken_s")

    def __init__(self, writer: Writer, request: Append, answered: Answered, asked_s: float) -> None:
        self._writer = writer
        self.request = request
        self._answered = answered
        self._asked_s = asked_s

    def __call__(self, answer: Appended | Exception) -> None:
        """Take what the store says."""
        if isinstance(answer, StoreUnavailable | CommitUnknown):
            self.taken_s = asyncio.get_running_loop().time() - self._asked_s
            if isinstance(answer, CommitUnknown):
                self._writer.find_out(self, answer)
            else:
                self.conclude(_timed(answer, self.taken_s))
        else:
            self.conclude(answer)

    def conclude(self, answer: Appended | Exception) -> None:
        """Tell who waits."""
        self._writer.settle(answer)
        self._answered(answer)


P = TypeVar("P", StoreUnavailable, CommitUnknown)


def _timed(problem: P, taken_s: float) -> P:
    """Return *problem* for one of those whom it was told: each has waited for a time of its own."""
    told = type(problem)(*problem.args)
    told.taken_s = taken_s
    told.__cause__ = problem.__cause__ or problem
    return told
