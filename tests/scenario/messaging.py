"""What the scenarios with messages share: a shop whose worker has servers, and a look into queues."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.processes import Service
from tidewheel.broker.message import Message
from tidewheel.broker.opening import open_broker

SHOP = """
from tidewheel import App, Context

app = App("shop")


@app.task
async def charge(order: str, cents: int) -> str:
    return f"{cents} for {order}"


@app.workflow
async def fulfil(ctx: Context, order: str, cents: int = 100) -> str:
    return await ctx.invoke(charge, order, cents)
"""


@contextmanager
def shop_at_work(folder: Path, store: str, broker: str) -> Iterator[Service]:
    """Have a worker and a keeper of the shop while the block lasts; they must end well."""
    (folder / "shop.py").write_text(SHOP, "utf-8")
    before = dict(os.environ)
    os.environ.update({"TIDEWHEEL_STORE": store, "TIDEWHEEL_BROKER": broker})
    try:
        service = Service("up", "shop.py:app", folder=folder)
    finally:
        os.environ.clear()
        os.environ.update(before)
    try:
        service.wait_for("ready")
        yield service
        service.send(signal.SIGTERM)
        assert service.exit_code() == 0, service.text
    finally:
        service.end()


def depth(broker: str, queue: str) -> int:
    """Count what waits in *queue*."""

    async def ask() -> int:
        connected = open_broker(broker, store_url="")
        try:
            return await connected.depth(queue)
        finally:
            await connected.close()

    return asyncio.run(ask())


def read(broker: str, queue: str, count: int) -> list[Message]:
    """Take *count* messages from *queue*."""

    async def ask() -> list[Message]:
        connected = open_broker(broker, store_url="")
        taken = []
        try:
            async with connected.consume(queue, prefetch=count) as deliveries:
                for _ in range(count):
                    delivery = await asyncio.wait_for(anext(deliveries), 30)
                    await delivery.acknowledge()
                    taken.append(delivery.message)
        finally:
            await connected.close()
        return taken

    return asyncio.run(ask())
