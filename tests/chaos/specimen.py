"""A database as a good run of the shop leaves it, for the checker to be tried on."""

from __future__ import annotations

from pathlib import Path

import psycopg

from tests.chaos.ledger import Ledger, Line
from tests.chaos.orders import PAID, payment_of, run_id_of, workflow_of
from tests.chaos.shop import Shop, app
from tidewheel.broker.memory import MemoryBroker
from tidewheel.sdk.client import Client
from tidewheel.store.opening import open_store
from tidewheel.workers.process import running
from tidewheel.workers.worker import Worker

#: Two errands and an order.
NUMBERS = (1, 2, 4)
STARTED = tuple(run_id_of(number) for number in NUMBERS)

_TABLE = "CREATE TABLE shop_rows (key TEXT NOT NULL, attempt INTEGER NOT NULL)"


async def make_tables(url: str) -> None:
    """Make the tables in an empty database: the product's, and that of the shop's transactional step."""
    store = await open_store(url, auto_migrate=True)
    await store.close()
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(_TABLE)


async def make_specimen(folder: Path, url: str) -> list[Line]:
    """Let the shop work with the empty database at *url*, and return its effects."""
    await make_tables(url)
    ledger = Shop.ledger = Ledger(folder / "specimen.jsonl")
    store, broker = await open_store(url), MemoryBroker()
    try:
        worker = Worker(app, store, broker)
        async with running([worker]), await Client.connect(store=store, broker=broker) as client:
            for number in NUMBERS:
                handle = await client.start(workflow_of(number), number, run_id=run_id_of(number))
                await handle.signal(PAID, payment_of(number))
                await handle.result(timeout=30)
    finally:
        await broker.close()
        await store.close()
    return ledger.lines()
