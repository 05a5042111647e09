"""Alerts reach the log at once and the bus as soon as it is there; whoever raises one is not held up."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Sequence

import pytest

from tidewheel.broker.alerts import Alert, alert_of, read_alert
from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.memory import MemoryBroker
from tidewheel.broker.message import Publication
from tidewheel.broker.protocol import Untaken
from tidewheel.broker.topology import ALERTS, Binding, Queue, Topology, bus_topology
from tidewheel.workers.alarms import KEPT_MAX, Alarms

AT = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


class ShyBroker(MemoryBroker):
    """A broker that can be away."""

    is_down = False

    async def offer(self, publications: Sequence[Publication]) -> list[Untaken | None]:
        """Take messages, unless it is away."""
        if self.is_down:
            raise BrokerUnavailable("the broker is away")
        return await super().offer(publications)


def alert(number: int = 0, name: str = "OUTBOX_DEAD_LETTER") -> Alert:
    """Return an alert."""
    return alert_of(name, namespace="shop", run_id=f"r-{number}", summary=f"it broke {number}", raised_at=AT)


@pytest.fixture
async def broker() -> ShyBroker:
    """A broker with a queue for all alerts."""
    broker = ShyBroker()
    await broker.declare(bus_topology())
    queue = Topology(queues=(Queue(name="alerts"),), bindings=(Binding(ALERTS, "alerts", "shop.#"),))
    await broker.declare(queue)
    return broker


async def heard(broker: MemoryBroker) -> list[str | None]:
    """Return of which runs alerts came over the bus."""
    async with broker.consume("alerts", prefetch=1_000) as deliveries:
        count = await broker.depth("alerts")
        return [read_alert((await anext(aiter(deliveries))).message).run_id for _ in range(count)]


async def test_an_alert_is_a_log_line_and_a_message(
    broker: ShyBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The line says how bad it is, what happened, and what to do about it."""
    alarms = Alarms(broker)

    alarms.raise_alert(alert())
    alarms.raise_alert(alert(1, "PROJECTOR_LAG_HIGH"))
    await alarms.close()

    first, second = [record for record in caplog.records if record.name == "tidewheel.alerts"]
    assert first.levelno == logging.ERROR
    assert second.levelno == logging.WARNING
    assert "OUTBOX_DEAD_LETTER (P1): it broke 0" in first.getMessage()
    assert "tidewheel dlq redrive" in first.getMessage()
    assert await heard(broker) == ["r-0", "r-1"]
    assert alarms.raised == {"OUTBOX_DEAD_LETTER": 1, "PROJECTOR_LAG_HIGH": 1}


async def test_while_the_bus_is_away_alerts_are_kept_up_to_a_bound(broker: ShyBroker) -> None:
    """Nobody is failed by it; what was kept comes with the next, the oldest are in the log alone."""
    alarms = Alarms(broker)
    broker.is_down = True
    for number in range(KEPT_MAX + 4):
        alarms.raise_alert(alert(number))
    await alarms.close()
    broker.is_down = False

    alarms.raise_alert(alert(999))
    await alarms.close()

    found = await heard(broker)
    assert len(found) == KEPT_MAX
    assert found[-1] == "r-999"
    assert found[0] == "r-5"
