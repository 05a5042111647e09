"""The projector: a role that keeps snapshots of runs, and users' projections, from the event bus.

Any number of processes may hold this role: they divide the shards among themselves (``shards``). Whoever dies
is silent, and the others take over its share. What becomes of an event is in ``pipeline``.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from typing import Final

from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.protocol import Broker
from tidewheel.broker.topology import SHARDS, projector_queue, projector_topology
from tidewheel.journal.errors import TidewheelError
from tidewheel.projector import telling
from tidewheel.projector.alerts import Alarm, RaiseAlert, on_the_bus
from tidewheel.projector.arrivals import Arrival
from tidewheel.projector.config import ProjectorConfig
from tidewheel.projector.consuming import ShardConsumer
from tidewheel.projector.inbox import Inbox
from tidewheel.projector.lag import Lag
from tidewheel.projector.looking import Looker
from tidewheel.projector.pipeline import Pipeline
from tidewheel.projector.shards import shards_of
from tidewheel.projector.sink import Sink
from tidewheel.projector.snapshot_sink import SnapshotSink
from tidewheel.store.protocol import Store
from tidewheel.workers.alarms import Alarms
from tidewheel.workers.clock import StoreClock

logger = logging.getLogger("tidewheel.projector")

#: How often it is looked whether what an early event waits for has come.
AGAIN_S: Final = 0.05
#: The pause after the store did not work.
PAUSE_S: Final = 0.5
#: How long what was delivered may take to be stored when it is told to stop.
STOPPING_S: Final = 5.0
#: How many beats there are in a lease.
BEATS: Final = 3


class Projector:
    """See the module. *shards* is 1 for brokers whose queues are dear: then one process does it all."""

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        store: Store,
        broker: Broker,
        *,
        namespace: str = "default",
        config: ProjectorConfig | None = None,
        shards: int = SHARDS,
        raise_alert: RaiseAlert | None = None,
        sinks: Sequence[Sink] = (),
    ) -> None:
        self.config = config or ProjectorConfig()
        #: What it is called among its kind.
        self.member = f"projector-{secrets.token_hex(6)}"
        self._store = store
        self._broker = broker
        self._namespace = namespace
        self._shards = shards
        self._topology = projector_topology(namespace, shards)
        self._clock = StoreClock()
        # Room for all that may be unsettled: what waits in a consumer would be delivered again when it
        # leaves.
        self._inbox = Inbox(shards * self.config.prefetch)
        self.lag = Lag(self.config.lag_s)
        self._alarms = Alarms(broker)
        tell = raise_alert or on_the_bus(self._alarms, self._clock)
        alarm = Alarm(tell, namespace, lambda: asyncio.get_running_loop().time())
        self._sinks = every = (SnapshotSink(store), *sinks)
        self.pipeline = Pipeline(
            every,
            self._inbox,
            namespace=namespace,
            alarm=alarm,
            lag=self.lag,
            clock=self._clock,
            patience_s=self.config.patience_s,
        )
        self._looker = Looker(
            store,
            broker,
            every,
            namespace=namespace,
            queues=[projector_queue(namespace, shard) for shard in range(shards)],
            projections=[sink.name for sink in sinks],
            alarm=alarm,
            config=self.config,
            is_leader=lambda: 0 in self._consumers,
        )
        self._consumers: dict[int, ShardConsumer] = {}
        self._attended_at: float | None = None
        self._tasks: list[asyncio.Task[None]] = []
        telling.observe(self)

    @property
    def shards(self) -> frozenset[int]:
        """The shards that it consumes now."""
        return frozenset(self._consumers)

    async def start(self) -> None:
        """Begin to project."""
        self._clock.tell(await self._store.now())
        for sink in self._sinks:
            await sink.prepare()
        try:
            await self._broker.declare(self._topology)
        except BrokerUnavailable as problem:
            logger.warning("the queues are declared later: %s", problem)
        await self._attend()
        duties = (self._beat_for_ever(), self._project_for_ever(), self._looker.look_for_ever())
        self._tasks = [asyncio.create_task(duty, name="tidewheel-projector") for duty in duties]

    async def stop(self) -> None:
        """Store what is in hand, and leave the shards to others. Safe to call twice."""
        if not self._tasks:
            return
        beat, project, look = self._tasks
        for task in (beat, look):
            task.cancel()
        await asyncio.gather(beat, look, return_exceptions=True)
        await asyncio.gather(*(self._leave_shard(shard) for shard in list(self._consumers)))
        project.cancel()
        await asyncio.gather(project, return_exceptions=True)
        self._tasks = []
        await self.pipeline.stop()
        await self._alarms.close()
        await self._store.snapshots.leave(self._namespace, self.member)

    async def hears(self) -> str | None:
        """Say what keeps it from projecting; None if nothing does."""
        now = asyncio.get_running_loop().time()
        if self._attended_at is None or now - self._attended_at > self.config.lease_s:
            return "it could not tell the store that it is alive"
        deaf = [consumer.queue for consumer in self._consumers.values() if not consumer.is_consuming]
        return f"does not consume {', '.join(sorted(deaf))}" if deaf else None

    # Who does what

    async def _beat_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.config.lease_s / BEATS)
            try:
                await self._attend()
                self._clock.tell(await self._store.now())
            except TidewheelError as problem:
                logger.warning("the projector cannot tell that it is alive: %s", problem)
            except Exception:
                logger.exception("the projector stumbled, and goes on")

    async def _attend(self) -> None:
        members = await self._store.snapshots.attend(self._namespace, self.member, self.config.lease_s)
        self._attended_at = asyncio.get_running_loop().time()
        mine = shards_of(self.member, members, self._shards)
        if mine == self._consumers.keys():
            return
        level = logging.INFO if self._tasks else logging.DEBUG  # how it begins is what everybody expects
        logger.log(level, "one of %d projectors, has %d of %d shards", len(members), len(mine), self._shards)
        await asyncio.gather(*(self._leave_shard(shard) for shard in self._consumers.keys() - mine))
        for shard in sorted(mine - self._consumers.keys()):
            queue = projector_queue(self._namespace, shard)
            consumer = ShardConsumer(self._broker, queue, self._topology, self._inbox, self.config.prefetch)
            self._consumers[shard] = consumer
            consumer.start()

    async def _leave_shard(self, shard: int) -> None:
        await self._consumers[shard].leave()
        self._consumers.pop(shard, None)

    # Projecting

    async def _project_for_ever(self) -> None:
        while True:
            timeout_s = AGAIN_S if self.pipeline.is_waiting else None
            deliveries = await self._inbox.batch(self.config.batch, timeout_s)
            arrivals = await self.pipeline.read(deliveries)
            await self._project(arrivals)

    async def _project(self, arrivals: Sequence[Arrival]) -> None:
        """Project *arrivals*, however long the store is away: they stay in hand meanwhile."""
        while True:
            try:
                with telling.projecting(arrivals):
                    await self.pipeline.project(arrivals)
                arrivals = ()
                if self.pipeline.is_waiting:
                    await self.pipeline.look_again()
                return
            except TidewheelError as problem:
                logger.warning("%d events are projected later: %s", len(arrivals), problem)
            except Exception:
                logger.exception("the projector stumbled over %d events, and tries again", len(arrivals))
            await asyncio.sleep(PAUSE_S)
