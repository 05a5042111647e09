"""The event pipeline, broken on purpose: a storm that does not notice would not notice a mistake either."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tidewheel.broker.message import Publication
from tidewheel.broker.protocol import Delivery
from tidewheel.outbox.lane import Lane
from tidewheel.outbox.relay import Relay
from tidewheel.projector.arrivals import Arrival
from tidewheel.projector.pipeline import Pipeline

#: Until the broker has what was said to it.
SAID_S = 0.05


def forget_first() -> None:
    """Let a relay forget what is owed before the bus has taken it (43)."""
    offer = Relay._offer

    async def mutated(self: Relay, wave: Sequence[tuple[Lane, Publication]]) -> None:
        await self._forget([lane.owed.place(row) for lane, _ in wave for row in lane.owed.rows])
        await offer(self, wave)

    Relay._offer = mutated  # type: ignore[method-assign]  # that is the mutation


def acknowledge_first() -> None:
    """Let a projector acknowledge events before it has written what they say."""
    read = Pipeline.read

    async def mutated(self: Pipeline, deliveries: Sequence[Delivery]) -> list[Arrival]:
        for delivery in deliveries:
            await delivery.acknowledge()
        await asyncio.sleep(SAID_S)
        return await read(self, deliveries)

    Pipeline.read = mutated  # type: ignore[method-assign]  # that is the mutation


#: By name, for processes that are told which to be.
APPLIED: dict[str, Callable[[], None]] = {
    "forget_first": forget_first,
    "acknowledge_first": acknowledge_first,
}
