"""The sales dashboard: every sale is counted once, whatever is delivered how often, on both databases."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from examples.sales import SalesByItem, app
from tests.examples.embedded import RESULT_WITHIN
from tidewheel import Client, PublicEvent, RunFailed
from tidewheel.broker.bus import publication_of_event
from tidewheel.broker.opening import open_broker
from tidewheel.broker.protocol import Broker
from tidewheel.broker.topology import SHARDS
from tidewheel.journal.public import published
from tidewheel.projector.config import ProjectorConfig
from tidewheel.projector.projection_sink import ProjectionSink
from tidewheel.projector.projector import Projector
from tidewheel.store.opening import open_store
from tidewheel.store.protocol import Store
from tidewheel.workers.config import WorkerConfig
from tidewheel.workers.process import running
from tidewheel.workers.worker import Worker


class Shop:
    """A worker, a projector and a client, over a store and a broker."""

    def __init__(self, store: Store, broker: Broker, client: Client, database: Any) -> None:
        self.store = store
        self.broker = broker
        self.client = client
        self._database = database

    async def sell(self, item: str, count: int, price_cents: int, run_id: str) -> None:
        """Sell something, and publish the events of that twice, mixed, as a troubled bus would."""
        run = await self.client.start("sell", item, count, price_cents, run_id=run_id)
        with contextlib.suppress(RunFailed):
            await run.result(RESULT_WITHIN)
        events = published(await run.journal(), run_id)
        again = random.Random(run_id).sample(events, len(events))
        await self.broker.publish([publication_of_event(event, "default") for event in (*events, *again)])

    def rows(self, query: str) -> list[Any]:
        """Ask the database, as a dashboard does."""
        with contextlib.closing(self._database()) as connection:
            return list(connection.execute(query).fetchall())

    async def shows(self, query: str, rows: list[Any]) -> None:
        """Wait until the database answers *query* with *rows*."""
        async with asyncio.timeout(RESULT_WITHIN):
            while self.rows(query) != rows:  # noqa: ASYNC110 - a table has no event to wait for
                await asyncio.sleep(0.05)


@pytest.fixture(params=["embedded", "fleet"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    """The shop on the embedded default, and on Postgres and RabbitMQ."""
    if request.param == "embedded":
        file = tmp_path / "tidewheel.db"
        url, broker_url, shards = f"sqlite:///{file}", "embedded://", 1
        connect: Any = lambda: sqlite3.connect(file)  # noqa: E731 - one of two
    else:
        url, broker_url = request.getfixturevalue("journals"), request.getfixturevalue("fresh_rabbitmq")
        connect, shards = (lambda: psycopg.connect(url)), SHARDS
    async with contextlib.AsyncExitStack() as stack:
        store = await open_store(url)
        stack.push_async_callback(store.close)
        broker = open_broker(broker_url, store_url=url)
        stack.push_async_callback(broker.close)
        client = await stack.enter_async_context(await Client.connect(store=store, broker=broker))
        projector = Projector(
            store,
            broker,
            config=ProjectorConfig(),
            shards=shards,
            sinks=[ProjectionSink(store, one) for one in app.projections.values()],
        )
        worker = Worker(app, store, broker, config=WorkerConfig(grace_s=0.0))
        await stack.enter_async_context(running([projector, worker]))
        yield Shop(store, broker, client, connect)


async def test_the_dashboard_shows_what_was_sold(shop: Shop) -> None:
    """Each sale once, by item; one that failed is in the other table."""
    for number in range(5):
        await shop.sell("tea", number, 350, f"tea-{number}")
        await shop.sell("cake", 1, 420, f"cake-{number}")
    await shop.sell("gold", 1, 1_000_000, "gold-1")

    await shop.shows(
        "SELECT item, orders, sold, revenue_cents FROM sales_by_item ORDER BY item",
        [("cake", 5, 5, 2100), ("tea", 5, 10, 3500)],
    )
    reason = "take_from_shelf: no gold left for 1"
    await shop.shows("SELECT run_id, reason FROM failed_sales", [("gold-1", reason)])


def test_the_reducer_needs_no_database() -> None:
    """It is a plain function of a row and an event."""
    event = PublicEvent(
        run_id="r",
        run_seq=3,
        prev_seq=2,
        event_type="RunCompleted",
        workflow="sell",
        data={"result": {"item": "tea", "count": 2, "paid_cents": 700}},
        idempotency_key="",
    )

    assert SalesByItem.key(event) == "tea"
    assert SalesByItem("tea", 1, 1, 350).reduce(event) == SalesByItem("tea", 2, 3, 1050)
