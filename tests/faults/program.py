"""A worker, and a keeper, as a service runs them: until they are told to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from tests.faults import crunching, mutants, trouble
from tests.faults.ledger import Ledger
from tests.faults.place import open_queues, store_file
from tests.faults.shop import Shop, app
from tidewheel.broker.embedded import sqlite_file
from tidewheel.store.append import Append, Appended, Fired, Verdict
from tidewheel.store.protocol import Store
from tidewheel.store.sqlite.store import SqliteStore
from tidewheel.workers.config import KeeperConfig, WorkerConfig
from tidewheel.workers.keeper import Keeper
from tidewheel.workers.process import Role, release_the_dead, running, until_told_to_stop
from tidewheel.workers.watchdog import Watchdog
from tidewheel.workers.worker import Worker

logger = logging.getLogger("tests.faults")

#: How long these processes wait for the lock of a file.
BUSY_S = 0.3


def serve(folder: str, *, keeper: bool, mutant: str | None, config: dict[str, Any]) -> None:
    """Work until SIGTERM; *config* is the worker's."""
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(name)s %(message)s")
    if mutant is not None:
        mutants.APPLIED[mutant]()
    trouble.install(Path(folder))
    # What waits for a lock gives up soon.
    sqlite_file.BUSY_S = BUSY_S
    Shop.folder, Shop.ledger = Path(folder), Ledger(Path(folder))
    app.include(crunching.app)
    if "queues" in config:
        config = {**config, "queues": tuple(config["queues"])}
    asyncio.run(_serve(Path(folder), keeper=keeper, config=WorkerConfig(**config)))


async def _serve(folder: Path, *, keeper: bool, config: WorkerConfig) -> None:
    store, broker = await SqliteStore.open(store_file(folder), busy_timeout_s=BUSY_S), open_queues(folder)
    try:
        await release_the_dead(store)
        roles: list[Role] = [Watchdog(blocked_after_s=0.5), Worker(app, store, broker, config=config)]
        if keeper:
            roles.append(Keeper(store, broker, config=KeeperConfig(poll_s=0.05)))
        async with running(roles):
            logger.info("ready")
            await until_told_to_stop()
            logger.info("stopping")
    finally:
        await broker.close()
        await store.close()


class Firing:
    """A store that counts the timers which were fired through it."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.fired = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, batch: Sequence[Append]) -> list[Appended]:
        """Write, and count."""
        answers = await self._store.append(batch)
        for request, answer in zip(batch, answers, strict=True):
            self.fired += sum(
                isinstance(fact, Fired) and verdict is Verdict.WRITTEN
                for fact, verdict in zip(request.facts, answer.verdicts, strict=True)
            )
        return answers


def keep(folder: str, *, batch: int) -> int:
    """Be a keeper until SIGTERM, and return how many timers it fired."""
    logging.basicConfig(level=logging.INFO)
    return asyncio.run(_keep(Path(folder), batch))


async def _keep(folder: Path, batch: int) -> int:
    store, broker = await SqliteStore.open(store_file(folder)), open_queues(folder)
    firing = Firing(store)
    try:
        config = KeeperConfig(poll_s=0.05, batch=batch)
        async with running([Keeper(cast("Store", firing), broker, config=config)]):
            logger.info("ready")
            await until_told_to_stop()
    finally:
        await broker.close()
        await store.close()
    return firing.fired
