"""The relay: publishes what the event bus is owed. Any number of processes may hold this role.

It claims rows of many runs, and offers the next event of each to the bus, all of them together; when the bus
has answered, the next of each, and so on: a *wave* has one event of a run at most. While the bus has one, the
books are kept: what was told before is forgotten, more is claimed, and what comes next is read. What was
refused holds back its own run, is tried again after a pause that grows, and after so many times is a dead
letter. If the bus itself is away everything is given back, nothing counts as a failure, and the relay tries
again by and by: a backlog drains by itself.

Delivery is at least once: whoever dies between telling and forgetting leaves rows that are told again.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import os
import random
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tidewheel.broker.alerts import Alert, alert_of
from tidewheel.broker.bus import publication_of_event
from tidewheel.broker.message import Publication, address
from tidewheel.broker.protocol import Broker, Untaken
from tidewheel.broker.topology import bus_topology
from tidewheel.journal.errors import InvalidRequest, TidewheelError
from tidewheel.outbox import watching
from tidewheel.outbox.backoff import pause_s
from tidewheel.outbox.config import RelayConfig
from tidewheel.outbox.edge import Edge
from tidewheel.outbox.lane import Lane
from tidewheel.store.errors import Unreadable
from tidewheel.store.outbox import OwedRow, Place, Trouble
from tidewheel.store.owed_events import told_of
from tidewheel.store.protocol import Store
from tidewheel.workers.alarms import Alarms

logger = logging.getLogger("tidewheel.relay")

#: So many rows, with so many bytes, are read in one go; one row is read whatever its size.
READ_ROWS_MAX = 256
READ_BYTES_MAX = 8 * 1024 * 1024
#: The longest text of an error that is kept.
ERROR_MAX = 2_000
#: The first and the longest pause while the bus, or the store, is away.
AWAY_S, AWAY_MAX_S = 0.2, 10.0
#: How long what is in hand may take when told to stop.
STOP_S = 5.0
#: People are told at most so often that events have no queue.
NOTICE_S = 60.0


@dataclass(slots=True)
class Counts:
    """What a relay has done so far, for whoever watches."""

    #: Events that the bus took; those of them that no queue wanted; those that it refused.
    told: int = 0
    unwanted: int = 0
    refused: int = 0
    dead: int = 0
    #: How old the oldest row of the latest claim was.
    lag_s: float = 0.0


class Relay:
    """See the module."""

    def __init__(
        self,
        store: Store,
        broker: Broker,
        *,
        config: RelayConfig | None = None,
        alarms: Alarms | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self.config = config or RelayConfig()
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.counts = Counts()
        self._store = store
        self._outbox = store.outbox
        self._broker = broker
        self._alarms = alarms or Alarms(broker)
        self._chance = chance or random.Random()  # noqa: S311 - pauses need differ, not be secret
        self._lanes: dict[bytes, Lane] = {}
        #: After which run to go on, and whether that may bring more. While some runs take long others are
        #: looked for from time to time.
        self._after = b""
        self._edge = Edge()
        self._has_more = True
        self._now: dt.datetime | None = None
        self._look_at = self._renew_at = 0.0
        self._is_declared = False
        self._is_stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        #: Why nothing is told at present, and how often that was so in a row.
        self.away: str | None = None
        self._times_away = 0
        self._notice_at = 0.0
        watching.observe(self)

    async def start(self) -> None:
        """Begin to publish."""
        self._task = asyncio.create_task(self._run(), name="tidewheel-relay")

    async def stop(self) -> None:
        """Finish the present wave, and give back the rest. Safe to call twice."""
        self._is_stopping.set()
        task, self._task = self._task, None
        if task is None:
            return
        await asyncio.wait([task], timeout=STOP_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self._let_go()
        await self._alarms.close()

    async def well(self) -> str | None:
        """Return why nothing is told at present, for whoever asks how it is."""
        return self.away

    async def _run(self) -> None:
        while not self._is_stopping.is_set():
            try:
                has_more = await self._round()
            except TidewheelError as problem:
                await self._stand_back(str(problem))
            except Exception as problem:
                logger.exception("the relay stumbled, and goes on")
                await self._stand_back(repr(problem))
            else:
                if self.away is not None:
                    logger.warning("the relay goes on")
                self.away, self._times_away = None, 0
                if not has_more:
                    await self._sleep(self.config.poll_s)

    async def _round(self) -> bool:
        """Offer one wave, and keep the books meanwhile; tell whether there is more to do."""
        if not self._is_declared:
            await self._broker.declare(bus_topology())
            self._is_declared = True
        # Both to their end, also where one fails: whatever is done about that, nothing is under way then.
        problems = await asyncio.gather(self._offer(self._wave()), self._keep_books(), return_exceptions=True)
        for problem in problems:
            if problem is not None:
                raise problem
        return bool(self._lanes) or self._has_more

    async def _keep_books(self) -> None:
        """Forget what was told before this round, claim, and read what comes next."""
        await self._settle()
        await self._claim()
        await self._renew()
        await self._read()

    async def _sleep(self, seconds: float) -> None:
        """Sleep, unless told to stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_stopping.wait()

    # Claims

    async def _claim(self) -> None:
        room = self.config.batch - len(self._lanes)
        now_s = time.monotonic()
        if not room or (self._lanes and not self._has_more and now_s < self._look_at):
            return
        is_new_pass = not self._after
        after = self._edge.begin(now_s) if is_new_pass else self._after
        claimed = await self._outbox.claim(self.name, after=after, limit=room, lease_s=self.config.lease_s)
        if is_new_pass:
            self._edge.note([owed.run_key for owed in claimed.owed])
        if not self._lanes:
            self._renew_at = now_s + self.config.lease_s / 3
        for owed in claimed.owed:
            self._lanes.setdefault(owed.run_key, Lane(owed))
        self._now = claimed.now
        self._after, self._has_more = claimed.after, bool(claimed.owed or claimed.after)
        self._look_at = now_s + self.config.poll_s
        oldest = min((owed.since for owed in claimed.owed), default=claimed.now)
        self.counts.lag_s = max((claimed.now - oldest).total_seconds(), 0.0)

    async def _renew(self) -> None:
        """Keep what takes long: a run may have published very much at once."""
        now_s = time.monotonic()
        if self._lanes and now_s >= self._renew_at:
            self._renew_at = now_s + self.config.lease_s / 3
            await self._outbox.renew(self.name, list(self._lanes), self.config.lease_s)

    # Telling

    async def _read(self) -> None:
        """Read what has to be told next, as far as there is room for it."""
        asked: list[tuple[Lane, OwedRow]] = []
        size = 0
        for lane in self._lanes.values():
            row = lane.unread
            if row is None:
                continue
            if asked and (len(asked) == READ_ROWS_MAX or size + row.size > READ_BYTES_MAX):
                break
            asked.append((lane, row))
            size += row.size
        if not asked:
            return
        found = await told_of(self._outbox, [(lane.owed, row) for lane, row in asked])
        for (lane, _), told in zip(asked, found, strict=True):
            if isinstance(told, Unreadable):
                if lane.next is None:  # else what stands before it is told first
                    lane.fail(str(told), is_hopeless=True)
            else:
                namespace = lane.owed.run.namespace
                lane.take_in([publication_of_event(event, namespace, told.trace) for event in told.events])

    def _wave(self) -> list[tuple[Lane, Publication]]:
        """Return the next event of each run, as far as it is known."""
        return [
            (lane, publication)
            for lane in self._lanes.values()
            if lane.error is None and (publication := lane.next) is not None
        ]

    async def _offer(self, wave: Sequence[tuple[Lane, Publication]]) -> None:
        """Offer a wave, and note what became of it."""
        if not wave:
            return
        try:
            answers = await self._broker.offer([publication for _, publication in wave])
        except InvalidRequest:  # one of them can never be published: find out which
            for lane, publication in wave:
                await self._offer_alone(lane, publication)
            return
        for (lane, publication), answer in zip(wave, answers, strict=True):
            self._note(lane, publication, answer)

    async def _offer_alone(self, lane: Lane, publication: Publication) -> None:
        try:
            (answer,) = await self._broker.offer([publication])
        except InvalidRequest as problem:
            lane.fail(str(problem), is_hopeless=True)
        else:
            self._note(lane, publication, answer)

    def _note(self, lane: Lane, publication: Publication, answer: Untaken | None) -> None:
        if answer is None or (answer == "unroutable" and not self.config.needs_queue):
            lane.taken()
            self.counts.told += 1
            if answer is not None:
                self._note_unwanted(publication)
            return
        self.counts.refused += 1
        what = "no queue takes" if answer == "unroutable" else "a queue refuses"
        lane.fail(f"{what} what was published to {address(publication)}")

    def _note_unwanted(self, publication: Publication) -> None:
        self.counts.unwanted += 1
        now_s = time.monotonic()
        if now_s >= self._notice_at:
            self._notice_at = now_s + NOTICE_S
            logger.info(
                "nobody has bound a queue for %s: such events are told to nobody", address(publication)
            )

    # What became of it

    async def _settle(self) -> None:
        """Forget what was told, and put off what failed."""
        ended = [lane for lane in self._lanes.values() if lane.is_done or lane.error is not None]
        if not ended:
            return
        await self._forget([place for lane in ended for place in lane.told()])
        failed = [lane for lane in ended if lane.error is not None]
        if failed:
            await self._put_off(failed)
        for lane in ended:
            del self._lanes[lane.owed.run_key]

    async def _forget(self, places: Sequence[Place]) -> None:
        if places:
            await self._outbox.sent(places)

    async def _put_off(self, lanes: Sequence[Lane]) -> None:
        troubles = [self._trouble_of(lane) for lane in lanes]
        await self._outbox.failed(troubles)
        for lane, trouble in zip(lanes, troubles, strict=True):
            if trouble.retry_after is not None:
                logger.warning(
                    "events of run %s are tried again in %.1f s: %s",
                    lane.owed.run,
                    trouble.retry_after.total_seconds(),
                    trouble.error,
                )
                continue
            self.counts.dead += 1
            self._alarms.raise_alert(self._alert_of(lane, trouble))

    def _alert_of(self, lane: Lane, trouble: Trouble) -> Alert:
        run, seq = lane.owed.run, trouble.place.first_seq
        assert self._now is not None
        return alert_of(
            "OUTBOX_DEAD_LETTER",
            namespace=run.namespace,
            run_id=run.run_id,
            summary=f"events of run {run.run_id} could not be published: {trouble.error}",
            details={
                "id": f"{run.run_id}@{seq}",
                "workflow": lane.owed.workflow,
                "firstSeq": seq,
                "attempts": lane.failures,
                "error": trouble.error,
            },
            raised_at=self._now,
        )

    def _trouble_of(self, lane: Lane) -> Trouble:
        assert lane.error is not None
        retry_after = None
        if not lane.is_hopeless and lane.failures < self.config.attempts:
            first_s, most_s = self.config.retry_s, self.config.retry_max_s
            retry_after = dt.timedelta(
                seconds=pause_s(lane.failures, first_s=first_s, most_s=most_s, chance=self._chance)
            )
        return Trouble(place=lane.stuck_at, error=lane.error[:ERROR_MAX], retry_after=retry_after)

    async def _stand_back(self, why: str) -> None:
        """The bus or the store is away: give everything back, and try again a little later."""
        self._times_away += 1
        if self.away is None:
            logger.warning("the relay waits: %s", why)
        self.away = why
        try:
            await self._let_go()
        except TidewheelError as problem:
            logger.debug("what was in hand is free when its lease ends: %s", problem)
        pause = pause_s(self._times_away, first_s=AWAY_S, most_s=AWAY_MAX_S, chance=self._chance)
        await self._sleep(pause)

    async def _let_go(self) -> None:
        """Forget what was told, and give back the rest for anybody to go on with."""
        lanes, self._lanes = self._lanes, {}
        if lanes:
            await self._forget([place for lane in lanes.values() for place in lane.told()])
            await self._outbox.release(self.name, list(lanes))
