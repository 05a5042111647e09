"""A database as a good run of the shop leaves it, for the checker to be tried on.

It is made by the product on SQLite and moved to Postgres row by row: the schema is the same, and nothing here
depends on the store that is under test elsewhere.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import psycopg
import sqlalchemy as sa

from tests.chaos.ledger import Ledger, Line
from tests.chaos.orders import PAID, payment_of, run_id_of, workflow_of
from tests.chaos.shop import Shop, app
from tidewheel.broker.memory import MemoryBroker
from tidewheel.sdk.client import Client
from tidewheel.store.schema import metadata
from tidewheel.store.sqlite.store import SqliteStore
from tidewheel.workers.process import running
from tidewheel.workers.worker import Worker

#: What transactional steps of the shop write to, on any database.
TABLE = "CREATE TABLE shop_rows (key TEXT NOT NULL, attempt INTEGER NOT NULL)"
#: Two errands and an order.
NUMBERS = (1, 2, 4)
STARTED = tuple(run_id_of(number) for number in NUMBERS)


async def make_specimen(folder: Path, url: str) -> list[Line]:
    """Let the shop work, and put what it wrote into the empty database at *url*; return its effects."""
    file = folder / "specimen.db"
    ledger = Shop.ledger = Ledger(folder / "specimen.jsonl")
    before, Shop.insert = Shop.insert, "INSERT INTO shop_rows (key, attempt) VALUES (?, ?)"
    store, broker = await SqliteStore.open(file), MemoryBroker()
    try:
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute(TABLE)
        worker = Worker(app, store, broker)
        async with running([worker]), await Client.connect(store=store, broker=broker) as client:
            for number in NUMBERS:
                handle = await client.start(workflow_of(number), number, run_id=run_id_of(number))
                await handle.signal(PAID, payment_of(number))
                await handle.result(timeout=30)
    finally:
        Shop.insert = before
        await broker.close()
        await store.close()
    _move(file, url)
    return ledger.lines()


def _move(file: Path, url: str) -> None:
    target = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=sa.NullPool)
    source = sa.create_engine(f"sqlite:///{file}", poolclass=sa.NullPool)
    metadata.create_all(target)
    with source.connect() as read, target.begin() as written:
        for table in metadata.sorted_tables:
            rows = [dict(row) for row in read.execute(sa.select(table)).mappings()]
            if rows:
                written.execute(sa.insert(table), rows)
    with contextlib.closing(sqlite3.connect(file)) as read_rows, psycopg.connect(url) as connection:
        connection.execute(TABLE)
        for row in read_rows.execute("SELECT key, attempt FROM shop_rows"):
            connection.execute("INSERT INTO shop_rows VALUES (%s, %s)", row)
