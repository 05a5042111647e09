"""How a client waits for the end of a run: told by a worker, with a look now and then as the net.

Rule 1: whoever waits is registered before it looks, so an end in between is not missed.
Rule 2: registering is one write, made once; a start can carry it.
Rule 3: a reply has the event that ended the run, or says that looking is worth while. Without any, looks come
0.5, 1, 2, ... 10 s apart; the first after 2 s where replies can come and many wait, who would keep the store
busy by looking.
"""

from __future__ import annotations

import asyncio
import logging

from tidewheel.journal import events as ev
from tidewheel.sdk.connection import Connection
from tidewheel.sdk.errors import NotFound
from tidewheel.sdk.replies import LISTEN_TIMEOUT_S, Told
from tidewheel.store.append import Append, Await
from tidewheel.store.errors import StoreUnavailable
from tidewheel.store.records import RunRecord, RunRef

logger = logging.getLogger("tidewheel.client")

LOOK_FIRST_S, LOOK_MAX_S = 0.5, 10.0
#: When one that is told looks first if more than so many wait beside it.
CROWDED_LOOK_FIRST_S, CROWD = 2.0, 100
#: Looks that may fail one after the other before whoever waits is told.
FAILED_LOOKS_MAX = 5


class Ending:
    """The end of one run, for as long as somebody waits for it."""

    def __init__(
        self,
        connection: Connection,
        run: RunRef,
        *,
        is_awaited: bool,
        is_new: bool = False,
        is_published: bool = False,
    ) -> None:
        """*is_awaited*: the store knows that this client waits. *is_new*: it knew so from the run's start.

        *is_published*: that was asked for by a message, and the run is there once it was followed.
        """
        self._is_published = is_published
        self._connection = connection
        self._run = run
        self._is_awaited = is_awaited
        #: Whether a reply comes for sure, or almost, so that looking before it does is not worth while.
        self._is_told = is_awaited and is_new
        self._terminal: ev.Event | None = None
        #: The run's row when it was last looked at.
        self._seen: RunRecord | None = None
        self._failed_looks = 0

    async def wait(self, limit_s: float | None) -> ev.Event:
        """Return the event that ended the run, or raise ``TimeoutError`` after *limit_s* seconds.

        The limit bounds the waiting; a look at the store that is under way is not cut off.
        """
        if self._terminal is not None:
            return self._terminal
        deadline_s = None if limit_s is None else asyncio.get_running_loop().time() + limit_s
        replies = self._connection.replies
        if not replies.is_listening and (limit_s is None or limit_s > 0):
            await replies.listen(LISTEN_TIMEOUT_S if limit_s is None else limit_s)
        told = replies.expect(self._run)
        try:
            self._terminal = await self._wait(told, limit_s, deadline_s)
        finally:
            replies.forget(self._run, told)
        return self._terminal

    async def _wait(self, told: Told, limit_s: float | None, deadline_s: float | None) -> ev.Event:
        """Look when *told* so, and now and then."""
        waits_first = self._is_told and (limit_s is None or limit_s > LOOK_FIRST_S)
        found = None if waits_first else await self._look()
        replies = self._connection.replies
        is_crowded = replies.is_listening and replies.awaited > CROWD
        pause_s = CROWDED_LOOK_FIRST_S if is_crowded else LOOK_FIRST_S
        while found is None:
            left_s = pause_s
            if deadline_s is not None:
                left_s = min(left_s, deadline_s - asyncio.get_running_loop().time())
            if left_s <= 0:
                raise TimeoutError(self._still_open(limit_s))
            await told.wait(left_s)
            self._connection.check_usable()
            found = (
                told.event if isinstance(told.event, ev.TERMINAL) else await self._look_again(told.last_seq)
            )
            pause_s = min(2 * pause_s, LOOK_MAX_S)
        return found

    async def _look_again(self, last_seq: int) -> ev.Event | None:
        """Look; a store that is away for a moment does not end the waiting.

        If it was said which event ended the run, that is looked at alone.
        """
        try:
            found = await self._event(last_seq) or await self._look()
        except StoreUnavailable as problem:
            self._failed_looks += 1
            if self._failed_looks >= FAILED_LOOKS_MAX:
                raise
            logger.warning("run %s cannot be looked at, will try again: %s", self._run, problem)
            return None
        self._failed_looks = 0
        return found

    async def _look(self) -> ev.Event | None:
        """Return the run's end if it is there; else see to it that a worker tells when it is."""
        replies = self._connection.replies
        if self._is_awaited or not replies.is_listening:
            return await self._find()
        answer = await self._connection.append(Append(run=self._run, mark=Await(reply_to=replies.queue)))
        if answer.last_seq < 0:
            self._expect_it_later()
            return None
        self._is_awaited = True
        return await self._read(answer.last_seq) if answer.ended else None

    async def _find(self) -> ev.Event | None:
        before, record = self._seen, await (await self._connection.store()).find(self._run)
        if record is None:
            self._expect_it_later()
            return None
        self._seen = record
        if record.ended:
            return await self._read(record.last_seq)
        if record.parked is not None and (before is None or before.parked != record.parked):
            logger.warning(
                "run %s is parked (%s: %s); still waiting for its result",
                self._run,
                record.parked,
                record.parked_reason,
            )
        return None

    def _expect_it_later(self) -> None:
        """The run is not there: a command for it may be on its way."""
        if not self._is_published:
            raise not_found(self._run)
        logger.info("run %s is not there yet: no worker has followed the command for it", self._run)

    async def _read(self, last_seq: int) -> ev.Event:
        """Return the event that ended the run: nothing follows it."""
        event = await self._event(last_seq)
        if event is None:
            raise not_found(self._run)
        return event

    async def _event(self, last_seq: int) -> ev.Event | None:
        """Return event *last_seq* if it ended the run."""
        if last_seq < 0:
            return None
        entries = await (await self._connection.store()).journal(self._run, after=last_seq - 1)
        event = entries[-1].event if entries else None
        return event if isinstance(event, ev.TERMINAL) else None

    def _still_open(self, limit_s: float | None) -> str:
        words = f"run {self._run.run_id} did not end within {limit_s:g} seconds"
        if self._seen is None:
            return words
        parked = f", parked: {self._seen.parked_reason}" if self._seen.parked is not None else ""
        return f"{words}: it is {self._seen.status}{parked}"


def not_found(run: RunRef) -> NotFound:
    """Say that there is no such run."""
    return NotFound(f"there is no run {run.run_id!r} in namespace {run.namespace!r}")
