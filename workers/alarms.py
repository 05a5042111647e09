"""Alerts, as log lines and as messages on ``tidewheel.alerts``.

Whoever raises one is never held up or failed by it: a line is written at once; the message is offered to the
bus, and if that is away it is kept, up to a bound, and offered again with the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from typing import Final

from tidewheel.broker.alerts import Alert, publication_of_alert
from tidewheel.broker.protocol import Broker
from tidewheel.broker.topology import bus_topology
from tidewheel.journal.errors import TidewheelError
from tidewheel.telemetry import switch
from tidewheel.workers import telling

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
        self._offering: asyncio.Task[None] | None = None
        #: How many were raised, by name, for whoever watches.
        self.raised: Counter[str] = Counter()

    def raise_alert(self, alert: Alert) -> None:
        """Tell people of *alert*: at once in the log, soon on the bus."""
        self.raised[alert.alert] += 1
        if switch.active is not None:
            telling.alerted(switch.active, alert)
        level, severity = _LEVELS[alert.severity], alert.severity
        fields = {"alert": alert.alert, "severity": severity, "namespace": alert.namespace}
        if alert.run_id is not None:
            fields["run_id"] = alert.run_id
        what = (alert.alert, severity, alert.summary, alert.action)
        logger.log(level, "%s (%s): %s. %s", *what, extra={"fields": fields})
        self._kept.append(alert)
        if self._offering is None or self._offering.done():
            self._offering = asyncio.create_task(self._offer(), name="tidewheel-alerts")

    async def close(self) -> None:
        """Wait a little until what was raised is on the bus."""
        if self._offering is not None:
            await self._offering

    async def _offer(self) -> None:
        while self._kept:
            alerts = list(self._kept)
            try:
                async with asyncio.timeout(OFFER_S_MAX):
                    await self._broker.declare(bus_topology())
                    await self._broker.offer([publication_of_alert(alert) for alert in alerts])
            except (TidewheelError, TimeoutError) as problem:
                logger.warning("%d alerts are published with the next: %s", len(alerts), problem)
                return
            for alert in alerts:
                with contextlib.suppress(ValueError):  # so many came meanwhile that it was let go of
                    self._kept.remove(alert)
