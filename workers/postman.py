"""Publishes what commits owe: hints and notices, in batches, without holding up whoever committed.

A message that cannot be published is dropped and counted. The store knows who is owed a
wake-up, and the keeper publishes it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable

from tidewheel.broker.errors import BrokerUnavailable, Unroutable
from tidewheel.broker.message import Publication
from tidewheel.broker.protocol import Broker
from tidewheel.broker.topology import is_for_a_client
from tidewheel.sdk.hinting import publications
from tidewheel.store.append import Appended

logger = logging.getLogger("tidewheel.workers")

BATCH_MAX = 100
#: More than this waiting to be published is dropped: the keeper knows about all of it.
WAITING_MAX = 10_000


class Postman:
    """A bounded queue of messages on their way to the broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: deque[Publication] = deque()
        #: Commits of which nothing was published yet: those of one transaction come together.
        self._owed: list[Appended] = []
        self._publishing: asyncio.Task[None] | None = None
        self.dropped = 0

    def send(self, publications: Iterable[Publication]) -> None:
        """Publish these soon."""
        for publication in publications:
            if len(self._waiting) >= WAITING_MAX:
                self.dropped += 1
                continue
            self._waiting.append(publication)
        self._begin()

    async def deliver(self, publications: Iterable[Publication]) -> None:
        """Publish these soon; nobody is made to wait for it."""
        self.send(publications)

    def follow_up(self, answer: Appended) -> None:
        """Publish soon what a commit owes; who waits for several runs is told of them together."""
        self._owed.append(answer)
        self._begin()

    def _begin(self) -> None:
        if self._publishing is None and (self._waiting or self._owed):
            self._publishing = asyncio.create_task(self._publish(), name="tidewheel-postman")

    async def idle(self) -> None:
        """Return when nothing waits to be published."""
        while self._publishing is not None:
            await asyncio.wait([self._publishing])

    async def _publish(self) -> None:
        try:
            while self._waiting or self._owed:
                owed, self._owed = self._owed, []
                self.send(publications(owed))
                batch = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
                try:
                    await self._broker.publish(batch)
                except Unroutable as problem:
                    self.dropped += len(problem.addresses)
                    # A client that has left takes no replies: that is nothing to tell of.
                    to_clients = all(is_for_a_client(address) for address in problem.addresses)
                    level = logging.DEBUG if to_clients else logging.INFO
                    logger.log(level, "%s; the keeper will publish it again if it still matters", problem)
                except BrokerUnavailable as problem:
                    self.dropped += len(batch)
                    logger.warning("%d hints were not published and will be again: %s", len(batch), problem)
        finally:
            self._publishing = None
