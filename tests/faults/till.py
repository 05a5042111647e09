"""A till: an app with one step, which a test lets end, and a worker that serves it on a store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from tests.faults.place import eventually
from tidewheel import App, Client, Context, Retry, StepFailed, current_task
from tidewheel.broker.memory import MemoryBroker
from tidewheel.sdk.handle import Handle
from tidewheel.store.protocol import Store
from tidewheel.testing import verify
from tidewheel.workers.config import WorkerConfig
from tidewheel.workers.keeper import Keeper
from tidewheel.workers.process import running
from tidewheel.workers.worker import Worker
from tidewheel.workers.write_budget import StateStoreConfig

#: What a worker says of a result that it cannot write, and of one that it does not write any more.
WAITS = "waits for the store"
GIVEN_UP = "over its result, and did not write it"

#: Executions enough for what the tests do.
THRICE = Retry(max_attempts=3, initial=0.05, jitter=0.0)


class Till:
    """An app with one step, which ends when the test opens the till."""

    def __init__(self, retry: Retry, *, inline: bool) -> None:
        self.app = App("till")
        self.opened = asyncio.Event()
        self.attempts: list[int] = []
        self.ended = 0
        #: Called by the body first, while nothing else goes on.
        self.at_begin: Callable[[], object] = lambda: None

        @self.app.task(retry=retry, inline=inline)
        async def pay() -> int:
            self.at_begin()
            self.attempts.append(current_task().attempt)
            await self.opened.wait()
            self.ended += 1
            return 7

        @self.app.workflow
        async def checkout(ctx: Context) -> str:
            try:
                return f"paid {await ctx.invoke(pay)}"
            except StepFailed as problem:
                return f"{problem.error_type} after {problem.attempts}"

        self.checkout = checkout

    async def begun(self, client: Client) -> Handle[str]:
        """Start a run, and return when its step was begun."""
        handle = await client.start(self.checkout, run_id="run")
        await eventually(lambda: self.attempts, "the body's begin")
        return handle


@contextlib.asynccontextmanager
async def working(
    open_store: Callable[[], Awaitable[Store]], till: Till, state_store: StateStoreConfig
) -> AsyncIterator[Client]:
    """Let a worker serve *till* on a store, beside a keeper; the client has it as another process has."""
    stores = [await open_store() for _ in range(2)]
    broker = MemoryBroker()
    config = WorkerConfig(started_after_s=0.1, pause_s=0.05)
    try:
        worker = Worker(till.app, stores[0], broker, config=config, state_store=state_store)
        async with (
            running([Keeper(stores[0], broker), worker]),
            await Client.connect(store=stores[1], broker=broker) as client,
        ):
            yield client
    finally:
        await broker.close()
        for store in stores:
            await store.close()


async def steps_of(handle: Handle[str]) -> list[str]:
    """Return what the journal says of the run's steps, after checking that it keeps to its rules."""
    journal = await handle.journal()
    assert verify(journal) == []
    names = [type(entry.event).__name__ for entry in journal]
    return [name for name in names if name.startswith("Invoke")]
