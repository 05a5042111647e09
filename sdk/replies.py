"""How a client is told that a run has ended: one queue, one consumer, any number of waiters.

The queue is made when somebody first waits. A reply says that a run has ended, and mostly with which event:
what was committed, as whoever committed it says. It may be lost like any hint, so who waits looks now and
then anyway. Nothing in here ever fails a caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict

import msgspec

from tidewheel.broker.errors import PoisonMessage
from tidewheel.broker.message import Message
from tidewheel.broker.protocol import Broker
from tidewheel.broker.topology import reply_queue, reply_topology
from tidewheel.broker.work_items import RunEnded, RunsEnded, read_item
from tidewheel.journal.errors import TidewheelError
from tidewheel.journal.events import Event
from tidewheel.sdk.hinting import event_of
from tidewheel.store.records import RunRef

logger = logging.getLogger("tidewheel.client")

PREFETCH = 100
#: A broker that cannot be listened to is tried again after this long, then twice as long, and so on.
RETRY_FIRST_S, RETRY_MAX_S = 0.5, 30.0
#: Who waits for a run does not wait longer than this for the queue to be there.
LISTEN_TIMEOUT_S = 5.0
#: So many runs may have ended before anybody waits for them; of more, the first are looked for.
UNHEARD_MAX = 10_000


class Told:
    """Whether somebody said that a run has ended, and with which event. One waits for it at a time."""

    __slots__ = ("_is_news", "_waiter", "event", "last_seq")

    def __init__(self) -> None:
        self._is_news = False
        self._waiter: asyncio.Future[None] | None = None
        #: The place of the run's last event, and the event itself, if that was said.
        self.last_seq = -1
        self.event: Event | None = None

    def tell(self, last_seq: int, event: Event | None = None) -> None:
        """Wake who waits."""
        if last_seq >= self.last_seq:
            self.last_seq = last_seq
            self.event = event or self.event
        self._is_news = True
        _wake(self._waiter)

    async def wait(self, timeout_s: float) -> None:
        """Return when something was said since last time, or after *timeout_s*."""
        if not self._is_news:
            loop = asyncio.get_running_loop()
            # Not asyncio.timeout: very many wait at a time, and this is a tenth of the work.
            waiter = self._waiter = loop.create_future()
            timer = loop.call_later(timeout_s, _wake, waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiter = None
        self._is_news = False


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


class Replies:
    """The replies of one client."""

    def __init__(self, broker: Broker, client: str) -> None:
        self._broker = broker
        self._client = client
        self.queue = reply_queue(client)
        #: Who waits for which run: each is told by itself.
        self._waiting: dict[RunRef, list[Told]] = {}
        #: Runs that ended before anybody waited for them, the latest, with their last events.
        self._unheard: OrderedDict[RunRef, RunEnded] = OrderedDict()
        self._consumer: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self.is_listening = False

    @property
    def awaited(self) -> int:
        """How many runs somebody waits for."""
        return len(self._waiting)

    def expect(self, run: RunRef) -> Told:
        """Return what is told when *run* may have ended, or has been told already; ``forget`` it after."""
        told = Told()
        self._waiting.setdefault(run, []).append(told)
        ended = self._unheard.pop(run, None)
        if ended is not None:
            told.tell(ended.last_seq, event_of(ended))
        return told

    def forget(self, run: RunRef, told: Told) -> None:
        """Tell *told* no more."""
        waiting = self._waiting[run]
        waiting.remove(told)
        if not waiting:
            del self._waiting[run]

    async def listen(self, timeout_s: float = LISTEN_TIMEOUT_S) -> bool:
        """Begin to listen, if that was not done; tell whether replies can reach this client by now."""
        if self._consumer is None:
            self._consumer = asyncio.create_task(self._consume(), name="tidewheel-replies")
        if not self._tried.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(timeout_s, LISTEN_TIMEOUT_S)):
                    await self._tried.wait()
        return self.is_listening

    async def close(self) -> None:
        """Stop listening, remove the queue, and let everybody who waits look. May be called twice."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.cancel()
            await asyncio.wait([consumer])
            with contextlib.suppress(TidewheelError, TimeoutError):
                async with asyncio.timeout(LISTEN_TIMEOUT_S):
                    await self._broker.delete_queue(self.queue)
        self._tell_all()

    async def _consume(self) -> None:
        """Listen for as long as the client lives, whatever happens to the broker."""
        retry_s = RETRY_FIRST_S
        while True:
            try:
                await self._broker.declare(reply_topology(self._client))
                async with self._broker.consume(self.queue, prefetch=PREFETCH) as deliveries:
                    self.is_listening, retry_s = True, RETRY_FIRST_S
                    self._tried.set()
                    self._tell_all()  # what was said while nobody listened is lost
                    async for delivery in deliveries:
                        self._take(delivery.message)
                        await delivery.acknowledge()
            except Exception as problem:  # noqa: BLE001 - whatever it is, looking now and then goes on
                if retry_s == RETRY_FIRST_S:
                    logger.warning("cannot be told that runs have ended, so looks now and then: %s", problem)
            finally:
                self.is_listening = False
                self._tried.set()
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, RETRY_MAX_S)

    def _take(self, message: Message) -> None:
        try:
            item = read_item(message)
            if isinstance(item, RunsEnded):
                for ended in item.runs:
                    self._hear(ended)
        except (PoisonMessage, msgspec.MsgspecError) as problem:
            logger.warning("a reply that says nothing was dropped: %s", problem)

    def _hear(self, ended: RunEnded) -> None:
        run = RunRef(ended.namespace, ended.run_id)
        waiting = self._waiting.get(run)
        if waiting is None:
            self._unheard[run] = ended
            if len(self._unheard) > UNHEARD_MAX:
                self._unheard.popitem(last=False)
            return
        event = event_of(ended)
        for told in waiting:
            told.tell(ended.last_seq, event)

    def _tell_all(self) -> None:
        for waiting in self._waiting.values():
            for told in waiting:
                told.tell(-1)
