"""A store with a run for each way a run can stand, made once and copied for each test."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from tests.cli import depot
from tidewheel import Client, RunCancelled, RunFailed
from tidewheel.broker.memory import MemoryBroker
from tidewheel.store.opening import open_store
from tidewheel.store.protocol import Store
from tidewheel.store.records import RunRecord, RunRef
from tidewheel.workers.process import running
from tidewheel.workers.worker import Worker

#: Looks at the store, each at most a quarter of a second after the other.
LOOKS_MAX = 120

COMPLETED, FAILED, CANCELLED, WAITING, PARKED = "sum-1", "fail-1", "cancel-1", "wait-1", "lost-1"


async def fill(folder: Path) -> None:
    """Make ``tidewheel.db`` in *folder*, with the five runs in it."""
    store = await open_store(f"sqlite:///{folder / 'tidewheel.db'}")
    broker = MemoryBroker()
    client = await Client.connect(store, broker.connect())
    async with running([Worker(depot.app, store, broker.connect())]):
        done = await client.start(depot.total, 1, 2, run_id=COMPLETED)
        await done.result(30)
        failed = await client.start(depot.fails, run_id=FAILED)
        with contextlib.suppress(RunFailed):
            await failed.result(30)
        cancelled = await client.start(depot.waits, run_id=CANCELLED)
        await cancelled.cancel("changed my mind")
        with contextlib.suppress(RunCancelled):
            await cancelled.result(30)
        await client.start(depot.waits, run_id=WAITING)
        await until(store, WAITING, lambda record: record.phase == "Blocked")
        await client.start("nobody", run_id=PARKED)
        await until(store, PARKED, lambda record: record.parked is not None)
    await client.close()
    await store.close()


async def until(store: Store, run_id: str, is_so: Callable[[RunRecord], bool]) -> None:
    """Return when the run's row is as wanted."""
    for _ in range(LOOKS_MAX):
        record = await store.find(RunRef("default", run_id))
        if record is not None and is_so(record):
            return
        await store.changed(0.25)
    raise TimeoutError(run_id)


def change(statement: str, *values: object) -> None:
    """Change the store in the current folder behind everybody's back."""
    connection = sqlite3.connect("tidewheel.db")
    with connection:
        changed = connection.execute(statement, values).rowcount
    connection.close()
    assert changed > 0, statement


def microseconds_ago(seconds: float) -> int:
    """A moment in the past, as the store writes it."""
    return int((time.time() - seconds) * 1_000_000)
