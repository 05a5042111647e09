"""A projector in a process of its own, which may die between storing and acknowledging.

``python -m tests.scenario.projecting OPTIONS`` with the options as JSON. Alerts are lines on standard output.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from tidewheel import PublicEvent
from tidewheel.broker.opening import open_broker
from tidewheel.projector.config import ProjectorConfig
from tidewheel.projector.projection_sink import ProjectionSink
from tidewheel.projector.projector import Projector
from tidewheel.sdk.projections import projection_definition
from tidewheel.store.opening import open_store
from tidewheel.workers.process import running, until_told_to_stop


@dataclasses.dataclass(frozen=True)
class EventsSeen:
    """How often each type of event was seen, over all runs: what is counted twice shows."""

    event_type: str
    count: int = 0

    @classmethod
    def key(cls, event: PublicEvent) -> str:
        """Return the type of the event."""
        return event.event_type

    def reduce(self, event: PublicEvent) -> EventsSeen:
        """Count it."""
        assert event.event_type == self.event_type
        return dataclasses.replace(self, count=self.count + 1)


def say(**alert: Any) -> None:
    """Write an alert, or whatever else happened, as a line."""
    sys.stdout.write(json.dumps(alert) + "\n")
    sys.stdout.flush()


def dying(call: Callable[..., Any], after: int) -> Callable[..., Any]:
    """Return *call*, which kills this process as soon as it was done so often."""
    done = 0

    async def called(*given: Any) -> Any:
        nonlocal done
        answer = await call(*given)
        done += 1
        if done >= after:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return called


async def main(options: dict[str, Any]) -> None:
    """Project until told to stop, or until it is time to die."""
    store, broker = (
        await open_store(options["store"]),
        open_broker(options["broker"], store_url=options["store"]),
    )
    facets: dict[str, Any] = {"save": store.snapshots, "project": store.projections}
    for method, after in options.get("dies", {}).items():
        setattr(facets[method], method, dying(getattr(facets[method], method), after))
    projector = Projector(
        store,
        broker,
        config=ProjectorConfig(**options.get("config", {})),
        raise_alert=say,
        sinks=[ProjectionSink(store, projection_definition(EventsSeen, name="seen", table="events_seen"))],
    )
    async with running([projector]):
        say(ready=projector.member)
        await until_told_to_stop()
    await broker.close()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
