"""A store with runs in it, a bus that their events are published on, and projectors over both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tests.conformance.store.driving import Run, done, ends, resumes, task, waits
from tests.unit.sdk.twins import BEGAN_S
from tidewheel.broker.bus import publication_of_event
from tidewheel.broker.memory import MemoryBroker
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.topology import (
    EVENTS,
    SHARDS,
    projector_dead_letters,
    projector_queue,
    projector_topology,
    shard_key,
)
from tidewheel.journal.public import PublicEvent, published
from tidewheel.journal.snapshot import RunSnapshot, snapshot_of
from tidewheel.projector.config import ProjectorConfig
from tidewheel.projector.projector import Projector
from tidewheel.projector.sink import Sink
from tidewheel.store.memory import MemoryStore

#: How long anything may take, in virtual time.
PATIENCE_S = 120.0


class Stage:
    """See the module."""

    def __init__(self) -> None:
        self.store = MemoryStore(clock=lambda: BEGAN_S + asyncio.get_running_loop().time(), seed=1)
        self.broker = MemoryBroker()
        self.alerts: list[dict[str, Any]] = []
        self.projectors: list[Projector] = []

    async def close(self) -> None:
        """Stop whatever is on it."""
        for projector in self.projectors:
            await projector.stop()

    async def begin(self, *, shards: int = SHARDS, sinks: Sequence[Sink] = (), **config: Any) -> Projector:
        """Start a projector with a connection of its own."""
        projector = Projector(
            self.store,
            self.broker.connect(),
            config=ProjectorConfig(**config),
            shards=shards,
            raise_alert=self._note,
            sinks=sinks,
        )
        self.projectors.append(projector)
        await projector.start()
        return projector

    def _note(self, **alert: Any) -> None:
        self.alerts.append(alert)

    @property
    def alert_names(self) -> list[str]:
        """The names of the alerts so far."""
        return [alert["name"] for alert in self.alerts]

    async def declare(self) -> None:
        """Make the queues, as a projector does that was there before."""
        await self.broker.declare(projector_topology("default"))

    async def live(self, run_id: str, steps: int = 3, *, is_over: bool = True) -> Run:
        """Let a run have so many steps, one after the other."""
        run = Run(self.store, run_id)
        await run.start()
        for number in range(steps):
            if number:
                await run.see()
            before = [resumes(str(number - 1))] if number else []
            await run.move(*before, task(str(number), key=f"step-{number}"), waits(str(number)))
            await run.tell(done(str(number)))
        if is_over:
            await run.see()
            await run.move(*([resumes(str(steps - 1))] if steps else []), ends())
        self.store.rows.outbox.clear()
        return run

    async def events(self, run: Run) -> list[PublicEvent]:
        """Return what *run* has published so far."""
        return published(await run.journal(), run.ref.run_id)

    async def publish(self, events: Iterable[PublicEvent]) -> None:
        """Publish *events* as the relay does."""
        await self.broker.publish([publication_of_event(event, "default") for event in events])

    async def publish_raw(self, body: bytes, headers: Mapping[str, str], run_id: str = "r") -> None:
        """Publish whatever somebody may have published."""
        message = Message(body=body, message_id="raw", headers=dict(headers))
        key = shard_key("default", run_id)
        await self.broker.publish(
            [Publication(message=message, exchange=EVENTS, routing_key="x", also=(key,))]
        )

    async def snapshot(self, run: Run) -> RunSnapshot | None:
        """Return the snapshot that is stored."""
        return await self.store.snapshots.read(run.ref)

    async def truth(self, run: Run) -> RunSnapshot:
        """Return the snapshot that the journal gives."""
        return snapshot_of(await run.journal(), run.ref.run_id)

    async def becomes_true(self, *runs: Run) -> None:
        """Wait until the stored snapshots are those that the journals give."""

        async def are_true() -> bool:
            return all([await self.snapshot(run) == await self.truth(run) for run in runs])

        await eventually(are_true)

    async def is_settled(self) -> None:
        """Wait until nothing is in a queue or in anybody's hands."""
        queues = [projector_queue("default", shard) for shard in range(SHARDS)]

        async def is_settled() -> bool:
            depths = [await self.broker.depth(queue) for queue in queues]
            return not any(depths) and not any(one._inbox._unsettled for one in self.projectors)

        await eventually(is_settled)

    async def dead_letters(self) -> int:
        """Count what was buried."""
        return await self.broker.depth(projector_dead_letters("default"))


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait until *check* is content."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if await check():
                return
            await asyncio.sleep(0.01)


def without(events: Sequence[PublicEvent], *places: int) -> list[PublicEvent]:
    """Return *events* without those at *places*."""
    return [event for place, event in enumerate(events) if place not in places]


def renamed(event: PublicEvent, event_type: str) -> PublicEvent:
    """Return *event* as one of another type."""
    return replace(event, event_type=event_type)
