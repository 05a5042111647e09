"""A worker and a keeper of the fleet, as a pod runs them, with points at which they can be made to die."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path
from typing import Any

from tests.chaos import corner, shop
from tests.chaos.driver_points import watch_drivers
from tests.chaos.ledger import Ledger
from tests.chaos.points import ArmedWatch, Stage
from tests.faults import mutants
from tests.faults.crash_points import watched_broker, watched_store
from tidewheel.broker.opening import open_broker
from tidewheel.sdk.app import App
from tidewheel.store.opening import open_store
from tidewheel.store.postgres.config import PostgresConfig
from tidewheel.workers.config import KeeperConfig, WorkerConfig
from tidewheel.workers.keeper import Keeper
from tidewheel.workers.process import Role, running, until_told_to_stop
from tidewheel.workers.watchdog import Watchdog
from tidewheel.workers.worker import Worker
from tidewheel.workers.write_budget import StateStoreConfig

logger = logging.getLogger("tests.chaos")

#: What the children of a fleet need.
PRELOADED = (
    "tests.chaos.program",
    "tidewheel.broker.rabbitmq.broker",
    "tidewheel.store.postgres.store",
)


def serve(
    folder: str,
    urls: list[str],
    *,
    known: dict[str, list[Stage]],
    armed: list[Any] | None,
    mutant: str | None,
    config: dict[str, Any],
) -> None:
    """Work until SIGTERM, or until the point comes that it is *armed* with.

    *urls* are the store's and the broker's; *mutant* breaks the code; *config* is the worker's, but for
    ``keeper``: whether it has one.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    place = Path(folder)
    ledger = shop.Shop.ledger = corner.Corner.ledger = Ledger(place / "ledger.jsonl")
    corner.Corner.folder = ledger.path.parent
    watch = ArmedWatch(place / "notes.jsonl", known)
    watch_drivers(watch)
    if mutant is not None:
        mutants.APPLIED[mutant]()
    if armed is not None:
        watch.arm(*armed)
    asyncio.run(_serve(place, urls, watch, config))


async def _serve(folder: Path, urls: list[str], watch: ArmedWatch, config: dict[str, Any]) -> None:
    # A handler of Python's own could come in the middle of workflow code, which may not open a file.
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, watch.obey, arms_file(folder, os.getpid()))
    is_keeping = config.pop("keeper", True)
    default_ms = StateStoreConfig().write_latency_budget_ms
    state_store = StateStoreConfig(write_latency_budget_ms=config.pop("budget_ms", default_ms))
    postgres = PostgresConfig(remembered_max=config.pop("remembered", PostgresConfig().remembered_max))
    both = App("both")
    both.include(shop.app)
    both.include(corner.app)
    store = watched_store(await open_store(urls[0], postgres=postgres), watch)
    try:
        broker = watched_broker(open_broker(urls[1], store_url=urls[0]), watch)
        try:
            worker = Worker(both, store, broker, config=WorkerConfig(**config), state_store=state_store)
            roles: list[Role] = [Watchdog(), worker]
            if is_keeping:
                roles.append(Keeper(store, broker, config=KeeperConfig()))
            async with running(roles):
                watch.stage = "work"
                logger.info("ready")
                await until_told_to_stop()
                watch.stage = "stop"
        finally:
            await broker.close()
    finally:
        await store.close()


def arms_file(folder: Path, pid: int) -> Path:
    """Return the file that says at which point the worker with this *pid* is to die."""
    return folder / f"armed-{pid}.json"
