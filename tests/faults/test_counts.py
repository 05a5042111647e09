"""How much work a long run makes. Times differ from machine to machine; counts do not."""

from __future__ import annotations

from pathlib import Path

from tests.faults.place import store_file
from tests.faults.shop import app, long
from tidewheel.broker.memory import MemoryBroker
from tidewheel.sdk.client import Client
from tidewheel.store.sqlite.store import SqliteStore
from tidewheel.workers.process import running
from tidewheel.workers.worker import Worker

STEPS = 5_000
#: Beside the steps: the start, the first and the last turn, the worker's lease, the client's looks.
CONSTANT = 60


async def test_a_step_costs_one_commit_and_reads_nothing(blank: Path) -> None:
    """A sequential run in a worker's memory: one transaction for each step, and no event is read back."""
    store, broker = await SqliteStore.open(store_file(blank)), MemoryBroker()
    try:
        worker = Worker(app, store, broker)
        async with running([worker]), await Client.connect(store=store, broker=broker) as client:
            handle = await client.start(long, STEPS)

            assert await handle.result(timeout=120) == STEPS

            counted = store.counters
            assert worker.services.writer.appends <= STEPS + CONSTANT
            assert counted.commits <= STEPS + CONSTANT
            assert counted.round_trips <= STEPS + CONSTANT
            assert counted.events_read <= CONSTANT
            assert counted.events_written >= 4 * STEPS
    finally:
        await broker.close()
        await store.close()
