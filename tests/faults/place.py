"""A store and a broker in files, workers in processes of their own, and a client in this one."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from tests.faults.ledger import Ledger
from tests.faults.nursery import PATIENCE_S, Child, Nursery
from tidewheel.broker.opening import open_broker
from tidewheel.broker.protocol import Broker
from tidewheel.journal import events as ev
from tidewheel.sdk.client import Client
from tidewheel.sdk.handle import Handle
from tidewheel.sdk.limits import Limits
from tidewheel.sdk.starting import start_of
from tidewheel.store.append import Append
from tidewheel.store.opening import open_store
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRef

#: The table that transactional tasks write to.
TABLE = "CREATE TABLE shop_rows (key TEXT NOT NULL, attempt INTEGER NOT NULL)"


def store_file(folder: Path) -> Path:
    """Return where the store is."""
    return folder / "store.db"


def broker_file(folder: Path) -> Path:
    """Return where the broker's queues are."""
    return folder / "store.broker.db"


def store_url(folder: Path) -> str:
    """Return the URL of the store."""
    return f"sqlite:///{store_file(folder)}"


async def open_both(folder: Path) -> tuple[Store, Broker]:
    """Open the store and the broker."""
    return await open_store(store_url(folder)), open_queues(folder)


def open_queues(folder: Path) -> Broker:
    """Open the broker."""
    return open_broker("embedded://", store_url=store_url(folder))


async def blank_in(folder: Path) -> Path:
    """Make the files, empty: to copy them is quicker than to migrate them each time."""
    folder.mkdir()  # noqa: ASYNC240 - nothing else goes on here
    store, broker = await open_both(folder)
    await broker.depth("any")
    await broker.close()
    await store.close()
    with contextlib.closing(sqlite3.connect(store_file(folder), isolation_level=None)) as connection:
        connection.execute(TABLE)
    return folder


async def eventually(holds: Callable[[], Any], what: str = "it") -> Any:
    """Wait until *holds* gives something true, and return that; nothing else announces it."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not (found := holds()):  # noqa: ASYNC110 - as said
                await asyncio.sleep(0.02)
            return found
    except TimeoutError:
        raise AssertionError(f"{what} did not happen within {PATIENCE_S:g} s") from None


class Place:
    """See the module; ``client`` is there within ``async with``."""

    def __init__(self, folder: Path, nursery: Nursery) -> None:
        self.folder = folder
        self.ledger = Ledger(folder)
        self._nursery = nursery
        self._opened = AsyncExitStack()
        self.client: Client
        self.store: Store
        self.broker: Broker

    async def __aenter__(self) -> Self:
        self.store, self.broker = await open_both(self.folder)
        self._opened.push_async_callback(self.store.close)
        self._opened.push_async_callback(self.broker.close)
        self.client = await self._opened.enter_async_context(
            await Client.connect(store=self.store, broker=self.broker)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    async def serve(self, *, keeper: bool = True, mutant: str | None = None, **config: Any) -> Child:
        """Start a worker, and a keeper, in a process of their own; it was ready when this returns."""
        child = await self._nursery.start(
            "tests.faults.program:serve",
            folder=str(self.folder),
            keeper=keeper,
            mutant=mutant,
            config=config,
        )
        await eventually(lambda: "ready" in child.said() or child.ended.done(), "the worker's start")
        assert "ready" in child.said(), child.said()  # and may have died of its work since
        return child

    async def start_untold(self, workflow: Callable[..., Any], *arguments: Any, run_id: str) -> Handle[Any]:
        """Start a run in the store, and tell no worker."""
        start, _ = start_of(workflow, arguments, idempotency_key=None, queue=None, limits=Limits())
        await self.store.append([Append(run=RunRef("default", run_id), start=start)])
        return self.client.handle(run_id)

    async def journal(self, run_id: str) -> list[ev.Entry]:
        """Read a run's journal."""
        return await self.store.journal(RunRef("default", run_id)) or []

    def rows(self, sql: str, *values: Any) -> list[Any]:
        """Execute a statement of the test's own on the store's file."""
        with contextlib.closing(sqlite3.connect(store_file(self.folder), isolation_level=None)) as connection:
            return connection.execute(sql, values).fetchall()

    def open_steps(self) -> list[tuple[str, int, bool]]:
        """Return path, attempt and whether somebody owns it of each open step, wherever it is."""
        return [
            (path, attempt, bool(is_owned))
            for path, attempt, is_owned in self.rows(
                "SELECT path, attempt, owner IS NOT NULL FROM tidewheel_steps"
                " UNION ALL SELECT json_extract(step.value, '$.path'),"
                " coalesce(json_extract(step.value, '$.attempt'), 0), owner IS NOT NULL"
                " FROM tidewheel_runs, json_each(inline_steps) AS step"
            )
        ]

    def let(self, name: str) -> None:
        """Let bodies go on that wait for *name*."""
        (self.folder / name).touch()
