"""The figures of a relay and of the outbox, for whoever watches. Nothing here runs unless telemetry is on.

What a relay does it counts anyway. How much waits has to be asked of the store, which a role of its own does
from time to time, and never while figures are being sent.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from tidewheel.journal.errors import TidewheelError
from tidewheel.store.outbox import Backlog, Outbox
from tidewheel.telemetry import names, switch

if TYPE_CHECKING:
    from tidewheel.outbox.relay import Relay

logger = logging.getLogger("tidewheel.relay")

#: How often the backlog is looked at.
LOOK_S: Final = 15.0


def observe(relay: Relay) -> None:
    """Let the figures of *relay* be read, if telemetry is on."""
    if switch.active is not None:
        switch.active.meters.observe(names.RELAY_EVENTS, relay, _events)


def _events(relay: Relay) -> list[tuple[float, dict[str, str]]]:
    counts = relay.counts
    told = {
        "taken": counts.told - counts.unwanted,
        "unwanted": counts.unwanted,
        "refused": counts.refused,
        "dead": counts.dead,
    }
    return [(value, {names.OUTCOME: outcome}) for outcome, value in told.items()]


class BacklogWatch:
    """A role that knows how much waits in *outbox*."""

    def __init__(self, outbox: Outbox, look_s: float = LOOK_S) -> None:
        self._outbox = outbox
        self._look_s = look_s
        self._task: asyncio.Task[None] | None = None
        #: What was found last, if anything was.
        self.found: Backlog | None = None
        if switch.active is not None:
            switch.active.meters.observe(names.OUTBOX_BACKLOG, self, _rows)
            switch.active.meters.observe(names.OUTBOX_AGE, self, _age)

    async def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._look_for_ever(), name="tidewheel-backlog")

    async def stop(self) -> None:
        """Look no more. Safe to call twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def look(self) -> None:
        """Look once. While the store is away nothing is known."""
        try:
            self.found = await self._outbox.backlog()
        except TidewheelError as problem:
            self.found = None
            logger.debug("the outbox is looked at later: %s", problem)

    async def _look_for_ever(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(self._look_s)


def _rows(watch: BacklogWatch) -> list[tuple[float, dict[str, str]]]:
    found = watch.found
    if found is None:
        return []
    pending = found.rows - found.dead
    return [(pending, {names.OUTCOME: "pending"}), (found.dead, {names.OUTCOME: "dead"})]


def _age(watch: BacklogWatch) -> list[tuple[float, dict[str, str]]]:
    found = watch.found
    if found is None:
        return []
    oldest = found.oldest_at or found.now
    return [(max((found.now - oldest).total_seconds(), 0.0), {})]
