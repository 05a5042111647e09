"""A consumer over kombu: a thread that drains, and what the event loop sees of it.

The thread owns the connection; nothing else touches it. Deliveries go to the loop, settlements come
back to the thread, and both are bounded by the prefetch. When the thread ends for any reason, the
iterator ends with ``BrokerUnavailable``: a consumer is never silently deaf.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Self

from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.kombu_types import WireMessage
from tidewheel.broker.kombu_wire import Target, Wire, our_errors, read_message
from tidewheel.broker.message import KEY, Message
from tidewheel.journal.errors import TidewheelError

#: How long closing waits for the thread, which may be waiting for a lock or a network.
CLOSE_MAX_S = 15.0

_log = logging.getLogger(__name__)


class _Settlement(NamedTuple):
    """What the consumer said of a delivery, for the thread to do."""

    delivery: KombuDelivery
    settle: Callable[[Wire], object]


class KombuDelivery:
    """One message in the hands of a consumer over kombu."""

    def __init__(self, consumer: KombuConsumer, raw: WireMessage) -> None:
        self._consumer = consumer
        self.tag = raw.delivery_tag
        self._message, self._earlier_deliveries = read_message(raw)
        self._routing_key = self._message.headers.get(KEY) or str(raw.delivery_info.get("routing_key") or "")
        #: Whether the program has got it; what it has not got was fetched ahead, and not delivered.
        self.seen = False
        self._settled = False

    @property
    def message(self) -> Message:
        """What was published."""
        return self._message

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self._consumer.queue

    @property
    def routing_key(self) -> str:
        """The key it was published under."""
        return self._routing_key

    @property
    def earlier_deliveries(self) -> int:
        """How often it was delivered before: 0 at first."""
        return self._earlier_deliveries

    async def acknowledge(self) -> None:
        """It is done with: forget it."""
        self._settle(lambda wire: wire.channel.basic_ack(self.tag))

    async def release(self) -> None:
        """Give it back to its place in the queue."""
        self._settle(lambda wire: wire.channel.basic_reject(self.tag, requeue=True))

    async def bury(self, reason: str) -> None:
        """Make it a dead letter, with its reason in the headers."""
        self._settle(lambda wire: wire.bury(self.tag, reason))

    def _settle(self, settle: Callable[[Wire], object]) -> None:
        """Hand the first word on to the thread; it is done with the next commit there."""
        if not self._settled:
            self._settled = True
            self._consumer.settle(_Settlement(self, settle))


class KombuConsumer:
    """Receives from one queue; ``open`` before and ``close`` after, in the same event loop."""

    def __init__(self, target: Target, queue: str, prefetch: int) -> None:
        self.queue = queue
        self._target = target
        self._prefetch = prefetch
        self._loop = asyncio.get_running_loop()
        self._opened = self._loop.create_future()
        self._stopped = self._loop.create_future()
        self._ended = self._loop.create_future()
        self._arrived: deque[KombuDelivery] = deque()
        self._changed = asyncio.Event()
        self._failure: TidewheelError | None = None
        # Shared with the thread:
        self._settlements: deque[_Settlement] = deque()
        self._fetches_no_more = False
        self._stopping = False
        self._wire: Wire | None = None
        # The thread's own:
        self._unsettled: dict[KombuDelivery, None] = {}
        self._thread = threading.Thread(target=self._run, name=f"consume {queue}", daemon=True)

    async def open(self) -> None:
        """Connect and begin to receive, or raise."""
        self._thread.start()
        await self._opened

    async def close(self, why: str) -> None:
        """Stop, and return when what is unsettled was given back. May be called twice."""
        self._fail(BrokerUnavailable(why))
        self._stopping = True
        self._interrupt()
        await asyncio.wait([self._ended], timeout=CLOSE_MAX_S)

    def __aiter__(self) -> Self:
        """Return itself: a consumer is its own iterator."""
        return self

    async def __anext__(self) -> KombuDelivery:
        """Wait for the next message. Being cancelled here costs none: it is taken in one go."""
        while True:
            if self._failure is not None:
                raise self._failure
            if self._fetches_no_more:
                raise StopAsyncIteration
            if self._arrived:
                delivery = self._arrived.popleft()
                delivery.seen = True
                return delivery
            self._changed.clear()
            await self._changed.wait()

    async def stop(self) -> None:
        """Fetch no more, and give back what was only fetched ahead; what is in hand can still be settled."""
        self._fetches_no_more = True
        self._changed.set()
        self._interrupt()
        await asyncio.wait(
            [self._stopped, self._ended], return_when=asyncio.FIRST_COMPLETED, timeout=CLOSE_MAX_S
        )

    def settle(self, settlement: _Settlement) -> None:
        """Let the thread do it. After closing there is nothing to do: the message went back."""
        if self._failure is None:
            self._settlements.append(settlement)
            self._interrupt()

    # In the event loop, called by the thread.

    def _arrive(self, deliveries: list[KombuDelivery]) -> None:
        self._arrived.extend(deliveries)
        self._changed.set()

    def _fail(self, failure: TidewheelError) -> None:
        """Let the iterator end with the first failure."""
        self._failure = self._failure or failure
        self._changed.set()

    def _have_opened(self) -> None:
        if not self._opened.done():
            self._opened.set_result(None)

    def _have_stopped(self) -> None:
        if not self._stopped.done():
            self._stopped.set_result(None)

    def _have_ended(self, failure: TidewheelError) -> None:
        self._fail(failure)
        if not self._opened.done():
            self._opened.set_exception(failure)
        if not self._ended.done():
            self._ended.set_result(None)

    def _interrupt(self) -> None:
        wire = self._wire
        if wire is not None:
            wire.interrupt()

    # In the thread.

    def _post(self, call: Callable[..., None], *arguments: object) -> None:
        """Call back in the event loop, unless that is closed: then nobody waits any more."""
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            self._stopping = True

    def _run(self) -> None:
        """Drain until told to stop; tell the loop how it ended, whatever happens."""
        failure: TidewheelError = BrokerUnavailable(f"the consumer of {self.queue!r} ended")
        try:
            with our_errors(self._target):
                self._drain_until_stopped()
        except TidewheelError as error:
            failure = BrokerUnavailable(f"the consumer of {self.queue!r} ended: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the loop has to be told
            _log.exception("the consumer of %r ended by a bug", self.queue)
            failure = BrokerUnavailable(f"the consumer of {self.queue!r} ended by a bug: {error!r}")
        finally:
            self._post(self._have_ended, failure)

    def _drain_until_stopped(self) -> None:
        wire = self._target.connect()
        try:
            batch: list[KombuDelivery] = []
            is_stopped = False
            wire.channel.basic_qos(0, self._prefetch, False)  # noqa: FBT003 - AMQP's order
            wire.consume(self.queue, lambda raw: batch.append(KombuDelivery(self, raw)))
            self._wire = wire
            self._post(self._have_opened)
            while not self._stopping:
                wire.drain()
                if batch:
                    self._unsettled.update(dict.fromkeys(batch))
                    self._post(self._arrive, batch.copy())
                    batch.clear()
                self._do_settlements(wire)
                if self._fetches_no_more and not is_stopped:
                    is_stopped = True
                    wire.consume_no_more()
                    self._unsettled.update(dict.fromkeys(batch))  # what came while it was cancelled
                    batch.clear()
                    self._give_back_unseen(wire)
                    self._post(self._have_stopped)
            self._do_settlements(wire)
            self._give_back_unseen(wire)
        finally:
            self._wire = None
            wire.close()

    def _do_settlements(self, wire: Wire) -> None:
        """Do what the consumer said since last time, in one commit."""
        if not self._settlements:
            return
        with wire.one_commit():
            while self._settlements:
                delivery, settle = self._settlements.popleft()
                del self._unsettled[delivery]
                settle(wire)

    def _give_back_unseen(self, wire: Wire) -> None:
        """Give back what nobody looked at as not delivered. The rest goes back with the connection."""
        unseen = [delivery for delivery in self._unsettled if not delivery.seen]
        with wire.one_commit():
            for delivery in unseen:
                del self._unsettled[delivery]
                wire.return_unseen(delivery.tag)
