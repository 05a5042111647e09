"""Alerts, as log lines and as messages on ``tidewheel.alerts``.

Whoever raises one is never held up or failed by it: a line is written at once; the message is offered to the
bus, and if that is away it is kept, up to a bound, and offered again with the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from tidewheel.broker.alerts import Alert, publication_of_alert
from tidewheel.broker.protocol import Broker
from tidewheel.broker.topology import bus_topology
from tidewheel.journal.errors import TidewheelError

logger = logging.getLogger("tidewheel.alerts")

#: So many are kept while the bus is away; older ones are in the log alone.
KEPT_MAX: Final = 100
#: How long a message may take: the line was written before.
OFFER_S_MAX: Final = 5.0
_LEVELS: Final = {"P1": logging.ERROR, "P2": logging.WARNING, "P3": logging.INFO}


class Alarms:
    """Raises alerts over *broker*."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._kept: deque[Alert] = deque(maxlen=KEPT_MAX)
        #: How many were raised, by name, for whoever watches.
        self.raised: dict[str, int] = {}

    async def raise_(self, alert: Alert) -> None:
        """Tell people of *alert*."""
        self.raised[alert.alert] = self.raised.get(alert.alert, 0) + 1
        logger.log(
            _LEVELS[alert.severity],
            "%s (%s): %s. %s",
            alert.alert,
            alert.severity,
            alert.summary,
            alert.action,
        )
        self._kept.append(alert)
        await self._offer()

    async def _offer(self) -> None:
        kept = list(self._kept)
        try:
            async with asyncio.timeout(OFFER_S_MAX):
                await self._broker.declare(bus_topology())
                await self._broker.offer([publication_of_alert(alert) for alert in kept])
        except (TidewheelError, TimeoutError) as problem:
            logger.warning("%d alerts were not published, and are with the next: %s", len(kept), problem)
        else:
            self._kept.clear()
