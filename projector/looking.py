"""The look for runs whose events never came: lost with a queue, or from before there was a projector.

A gap is found by the event after it; the last events of a run have none. So one of the projectors goes
through the runs, a page at a time, and compares the latest public event of each with the latest that was
seen. A page is one stretch of an index, and nothing is read of runs that are level. A run counts only if
nothing was written to it for a while, all its events were published, and no queue has a backlog: then they
will not come any more.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Sequence
from typing import Final

from tidewheel.broker.protocol import Broker
from tidewheel.journal.errors import TidewheelError
from tidewheel.journal.snapshot import NO_EVENT
from tidewheel.projector.alerts import GAP_DETECTED, Alarm
from tidewheel.projector.config import ProjectorConfig
from tidewheel.projector.sink import Sink
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef
from tidewheel.store.snapshots import Behind

logger = logging.getLogger("tidewheel.projector")

#: So many runs are compared at a time, and the pause between two times.
PAGE: Final = 1_000
PAUSE_S: Final = 1.0
#: So many runs are read from their journals at a time.
HEALS_MAX: Final = 8
#: So many runs are named in an alert.
NAMED_MAX: Final = 10


class Looker:
    """Goes through the runs of a namespace, again and again, while *is_leader* says that it is its turn."""

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        store: Store,
        broker: Broker,
        sinks: Sequence[Sink],
        *,
        namespace: str,
        queues: Sequence[str],
        projections: Sequence[str],
        alarm: Alarm,
        config: ProjectorConfig,
        is_leader: Callable[[], bool],
    ) -> None:
        self._store = store
        self._broker = broker
        self._sinks = sinks
        self._namespace = namespace
        self._queues = queues
        self._projections = projections
        self._alarm = alarm
        self._config = config
        self._is_leader = is_leader
        #: The key of the last run that was looked at.
        self._after: bytes | None = None
        #: How many runs were healed.
        self.healed = 0

    async def look_for_ever(self) -> None:
        """Look, a page at a time; a pass begins so often as the config says, or later if it takes longer."""
        while True:
            pause_s = self._config.look_s
            try:
                if self._is_leader() and await self.look():
                    pause_s = min(PAUSE_S, self._config.look_s)
            except TidewheelError as problem:
                logger.warning("the projector looks again later: %s", problem)
            except Exception:
                logger.exception("the projector stumbled while it looked, and goes on")
            await asyncio.sleep(pause_s)

    async def look(self) -> bool:
        """Look at the next page and heal what is behind; return whether there are more pages in this pass."""
        quiet_since = await self._store.now() - dt.timedelta(seconds=self._config.quiet_s)
        page = await self._store.snapshots.look(
            self._namespace,
            after=self._after,
            limit=PAGE,
            quiet_since=quiet_since,
            projections=self._projections,
        )
        if page.behind and not await self._has_backlog():
            await self._heal_all(page.behind)
        self._after = page.next_after
        return page.next_after is not None

    async def _has_backlog(self) -> bool:
        """Tell whether events wait in a queue: those that seem to be missing may be among them."""
        for queue in self._queues:
            if await self._broker.depth(queue):
                return True
        return False

    async def _heal_all(self, behind: Sequence[Behind]) -> None:
        lost = [one for one in behind if one.last_event_seq != NO_EVENT]
        if lost:
            self._alarm.raise_alert(
                GAP_DETECTED,
                f"{len(lost)} runs have events that never came, which are read from their journals",
                run_id=lost[0].run.run_id,
                runs=[one.run.run_id for one in lost[:NAMED_MAX]],
                count=len(lost),
            )
        turns = asyncio.Semaphore(HEALS_MAX)
        await asyncio.gather(*(self._heal(one.run, turns) for one in behind))
        logger.info("%d runs were projected from their journals", len(behind))

    async def _heal(self, run: RunRef, turns: asyncio.Semaphore) -> None:
        async with turns:
            try:
                for sink in self._sinks:
                    await sink.heal(run)
            except (StoreUnavailable, CommitUnknown):
                raise
            except Exception as problem:  # noqa: BLE001 - an unreadable journal is that run's alone
                logger.warning("run %s stays behind: %s", run, problem)
            else:
                self.healed += 1
