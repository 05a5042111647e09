"""The embedded default in one process: a worker, a keeper and a client over two files."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tidewheel import App, Client, Handle
from tidewheel.broker.opening import open_broker
from tidewheel.journal.events import Entry, ExecutionAwaiting, InvokeScheduled, PromiseCreated
from tidewheel.store.opening import open_store
from tidewheel.workers.config import WorkerConfig
from tidewheel.workers.keeper import Keeper
from tidewheel.workers.process import running
from tidewheel.workers.worker import Worker

#: Seconds a test waits for a result; far more than it should take.
RESULT_WITHIN = 40.0


@contextlib.asynccontextmanager
async def embedded(app: App, folder: Path) -> AsyncIterator[Client]:
    """Work on *app* with the files of *folder* while the block lasts; enter again to restart."""
    url = f"sqlite:///{folder / 'tidewheel.db'}"
    async with contextlib.AsyncExitStack() as stack:
        store = await open_store(url)
        stack.push_async_callback(store.close)
        broker = open_broker("embedded://", store_url=url)
        stack.push_async_callback(broker.close)
        client = await stack.enter_async_context(await Client.connect(store=store, broker=broker))
        worker = Worker(app, store, broker, config=WorkerConfig(grace_s=0.0))
        await stack.enter_async_context(running([worker, Keeper(store, broker)]))
        yield client


def steps_of(journal: list[Entry]) -> list[str]:
    """Return the names of the steps that *journal* asked for, in order."""
    return [entry.event.function_name for entry in journal if isinstance(entry.event, InvokeScheduled)]


async def until_it_waits(run: Handle[Any], name: str) -> None:
    """Return when *run* waits for the signal or the promise called *name*."""
    async with asyncio.timeout(RESULT_WITHIN):
        while not waits_for(await run.journal(), name):  # noqa: ASYNC110 - a file has no event to wait for
            await asyncio.sleep(0.02)


def waits_for(journal: list[Entry], name: str) -> bool:
    """Tell whether the run of *journal* waits for the signal or the promise called *name*."""
    last = journal[-1].event
    if not isinstance(last, ExecutionAwaiting):
        return False
    promises = {
        entry.event.promise_id
        for entry in journal
        if isinstance(entry.event, PromiseCreated) and entry.event.name == name
    }
    return bool(promises & set(last.waiting_on)) or name in {wait.signal_name for wait in last.signals}
