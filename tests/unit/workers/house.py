"""A fleet in one process: what the tests of workers begin, look at and stop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from tests.unit.sdk.twins import Broker, Store
from tidewheel import App, Client
from tidewheel.broker.topology import work_queue
from tidewheel.broker.work_items import RunHint, to_queue
from tidewheel.journal import events as ev
from tidewheel.sdk.limits import Limits
from tidewheel.store.records import RunRecord, RunRef
from tidewheel.workers.config import KeeperConfig, WorkerConfig
from tidewheel.workers.keeper import Keeper
from tidewheel.workers.worker import Worker
from tidewheel.workers.write_budget import StateStoreConfig


class House:
    """A store, a broker, a client, and the workers and keepers over them."""

    def __init__(self) -> None:
        self.store = Store()
        self.broker = Broker()
        self._client: Client | None = None
        self._workers: list[Worker] = []
        self._keepers: list[Keeper] = []

    async def client(self) -> Client:
        """The one client."""
        if self._client is None:
            self._client = await Client.connect(self.store, self.broker)
        return self._client

    async def worker(
        self,
        app: App,
        config: WorkerConfig | None = None,
        limits: Limits | None = None,
        namespace: str = "default",
        state_store: StateStoreConfig | None = None,
    ) -> Worker:
        """Begin a worker."""
        worker = Worker(
            app,
            self.store,
            self.broker,
            namespace=namespace,
            config=config,
            state_store=state_store,
            limits=limits,
            secret=b"test",
            threads=False,
        )
        self._workers.append(worker)
        await worker.start()
        return worker

    async def keeper(self, config: KeeperConfig | None = None) -> Keeper:
        """Begin a keeper."""
        keeper = Keeper(self.store, self.broker, config=config)
        self._keepers.append(keeper)
        await keeper.start()
        return keeper

    async def hint(self, run_id: str) -> None:
        """Say that a run has something to do."""
        item = RunHint(namespace="default", run_id=run_id)
        await self.broker.publish([to_queue(item, work_queue("default", "default"))])

    def run(self, run_id: str) -> RunRecord:
        """A run's row."""
        record = self.store.rows.run(RunRef("default", run_id))
        assert record is not None
        return record

    def events(self, run_id: str) -> list[ev.Event]:
        """A run's journal."""
        run = self.run(run_id)
        return [entry.event for entry in self.store.rows.entries(run.key, 0, run.last_seq)]

    def kinds(self, run_id: str) -> Counter[str]:
        """How many events of each class a run's journal has."""
        return Counter(type(event).__name__ for event in self.events(run_id))

    async def until(self, holds: Callable[[], bool], seconds: float = 60.0) -> None:
        """Let virtual time pass until *holds*."""
        async with asyncio.timeout(seconds):
            while not holds():  # noqa: ASYNC110 - rows have no event to wait for, and time is virtual
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Stop everything."""
        self.store.is_down = self.broker.is_down = False
        stopping: list[Awaitable[None]] = [worker.stop(grace_s=0.0) for worker in self._workers]
        stopping += [keeper.stop() for keeper in self._keepers]
        await asyncio.gather(*stopping)
        if self._client is not None:
            await self._client.close()
        await self.broker.close()
        await self.store.close()
