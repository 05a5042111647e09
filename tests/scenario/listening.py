"""A consumer of the event bus as users have one: its own durable queue, bound to every event."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from types import TracebackType
from typing import Self

from tidewheel.broker.bus import read_event
from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.opening import open_broker
from tidewheel.broker.protocol import Broker
from tidewheel.broker.topology import EVENTS, Binding, Queue, Topology, bus_topology
from tidewheel.journal.public import PublicEvent

QUEUE = "audit"
_TOPOLOGY = Topology(queues=(Queue(name=QUEUE),), bindings=(Binding(EVENTS, QUEUE, "#"),))
#: How long it waits before it tries a broker again that is away.
_PAUSE_S = 0.2
_JOIN_S_MAX = 30.0


class Listener:
    """Hears events in a thread while the block lasts, whatever becomes of the broker, and keeps them."""

    def __init__(self, broker: str) -> None:
        self._url = broker
        self._heard: list[tuple[str, PublicEvent]] = []
        self._is_ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_ready.wait(_JOIN_S_MAX), "the listener cannot reach the broker"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(_JOIN_S_MAX)

    @property
    def count(self) -> int:
        """How many messages came, those that came again included."""
        return len(self._heard)

    def events(self) -> dict[str, list[PublicEvent]]:
        """Return the events of each run as they came first; what came again is left out, by its id."""
        runs: defaultdict[str, list[PublicEvent]] = defaultdict(list)
        seen: set[str] = set()
        for message_id, event in list(self._heard):
            if message_id not in seen:
                seen.add(message_id)
                runs[event.run_id].append(event)
        return dict(runs)

    def _run(self) -> None:
        self._task = self._loop.create_task(self._listen())
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.close()

    async def _listen(self) -> None:
        broker = open_broker(self._url, store_url="")
        try:
            while True:
                try:
                    await self._listen_once(broker)
                except BrokerUnavailable:
                    await asyncio.sleep(_PAUSE_S)
        finally:
            await broker.close()

    async def _listen_once(self, broker: Broker) -> None:
        await broker.declare(bus_topology())
        await broker.declare(_TOPOLOGY)
        async with broker.consume(QUEUE, prefetch=200) as deliveries:
            self._is_ready.set()
            async for delivery in deliveries:
                self._heard.append((delivery.message.message_id, read_event(delivery.message)[1]))
                await delivery.acknowledge()
