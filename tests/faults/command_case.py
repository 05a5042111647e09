"""A worker, and a keeper, that follow the one command there is, and die at a point on the way.

The process is done when the run has ended and the command is settled. Another one begins where it died.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from tests.faults.crash_case import _watch_commits
from tests.faults.crash_points import Watch, watched_broker, watched_store
from tests.faults.place import open_both, open_queues, store_url
from tests.faults.story import Stage
from tidewheel import App, Context, Retry
from tidewheel.broker.commands import StartCommand, publication_of_command
from tidewheel.broker.topology import COMMANDS, commands_topology
from tidewheel.store.opening import open_store
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef
from tidewheel.workers.config import KeeperConfig, WorkerConfig
from tidewheel.workers.keeper import Keeper
from tidewheel.workers.process import release_the_dead, running
from tidewheel.workers.worker import Worker

RUN_ID = "ordered"
#: Where the command is taken, and where it is let go.
TAKEN, SETTLED = "delivery[StartCommand]:after", "delivery.acknowledge[StartCommand]:after"
#: A run that takes longer than this has got stuck.
STUCK_S = 20.0

app = App("commanded")


@app.task(retry=Retry(max_attempts=6, initial=0.01, jitter=0.0))
async def note(name: str) -> str:
    """A step, between two places to die at."""
    Stage.watch.reach(f"body[{name}]:before")
    Stage.ledger.write(name)
    Stage.watch.reach(f"body[{name}]:after")
    return name


@app.workflow
async def pays(ctx: Context, name: str) -> list[str]:
    """Two steps, one after the other."""
    return [await ctx.invoke(note, f"{name} charged"), await ctx.invoke(note, f"{name} sent")]


async def command(folder: Path, times: int = 1) -> None:
    """Publish the start, as often as this; nobody is there to take it."""
    broker = open_queues(folder)
    start = StartCommand(workflow="pays", input=["pen"], run_id=RUN_ID)
    await broker.declare(commands_topology())
    await broker.publish([publication_of_command(start, f"m-{number}") for number in range(times)])
    await broker.close()


def follow(folder: str, point: str | None, *, opens: bool) -> list[str]:
    """Be a service that follows the command; die at *point*. Return the points that were passed meanwhile."""
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(name)s %(message)s")
    watch = Watch(point)
    asyncio.run(_follow(Path(folder), watch, opens=opens))
    return between(watch.reached)


def between(points: Sequence[str]) -> list[str]:
    """Return the points from where the command was taken to where it was let go."""
    if f"{TAKEN}#1" not in points:
        return []
    return list(points[points.index(f"{TAKEN}#1") : points.index(f"{SETTLED}#1") + 1])


async def _follow(folder: Path, watch: Watch, *, opens: bool) -> None:
    Stage.set(folder, watch)
    _watch_commits(watch)
    async with AsyncExitStack() as opened:
        real_store, real_broker = await open_both(folder)
        store, broker = watched_store(real_store, watch), watched_broker(real_broker, watch)
        opened.push_async_callback(store.close)
        opened.push_async_callback(broker.close)
        look = await open_store(store_url(folder))
        opened.push_async_callback(look.close)
        await release_the_dead(store)
        config = WorkerConfig(lease_s=1.0, grace_s=5.0, opens=opens)
        keeper = Keeper(store, broker, config=KeeperConfig(poll_s=0.05))
        await opened.enter_async_context(running([Worker(app, store, broker, config=config), keeper]))
        async with asyncio.timeout(STUCK_S):
            while not await _has_ended(look) or not _is_settled(watch) or await real_broker.depth(COMMANDS):
                await look.changed(0.02)


async def _has_ended(look: Store) -> bool:
    run = await look.find(RunRef("default", RUN_ID))
    return run is not None and run.ended


def _is_settled(watch: Watch) -> bool:
    """Tell whether this process has let go of every command that it took."""
    taken, settled = (
        sum(point.startswith(f"{which}#") for point in watch.reached) for which in (TAKEN, SETTLED)
    )
    return taken == settled
