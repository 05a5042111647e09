"""The deliveries that a session has in hand: hints that were given to it, until they are settled.

No delivery is held for long, whatever happens: a broker takes whoever does for lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from tidewheel.broker.protocol import Delivery


class Held:
    """First come, first settled; *acknowledge* says of one that it is done with."""

    def __init__(self, hold_s: float, acknowledge: Callable[[Delivery], None]) -> None:
        self._hold_s = hold_s
        self._acknowledge = acknowledge
        #: When each of them has to be let go.
        self._limits: dict[Delivery, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._limits)

    def __iter__(self) -> Iterator[Delivery]:
        return iter(list(self._limits))

    @property
    def message_id(self) -> str | None:
        """The first one's message, if there is one."""
        for delivery in self._limits:
            return delivery.message.message_id or None
        return None

    def add(self, delivery: Delivery) -> None:
        """Hold *delivery*, for so long at most."""
        loop = asyncio.get_running_loop()
        self._limits[delivery] = loop.call_later(self._hold_s, self._let_go, delivery)

    def settle(self, *, keep: int = 0) -> None:
        """Acknowledge all but the first few."""
        for delivery in list(self._limits)[keep:]:
            self._let_go(delivery)

    def take(self) -> list[Delivery]:
        """Give out all of them: somebody else settles them."""
        for limit in self._limits.values():
            limit.cancel()
        taken = list(self._limits)
        self._limits.clear()
        return taken

    def _let_go(self, delivery: Delivery) -> None:
        limit = self._limits.pop(delivery, None)
        if limit is not None:
            limit.cancel()
            self._acknowledge(delivery)
