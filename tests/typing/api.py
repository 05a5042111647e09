"""How the public surface types for users. Never run: mypy checks it."""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from dataclasses import dataclass
from typing import Any, assert_type

from tidewheel import (
    App,
    Client,
    Context,
    CurrentTask,
    DurablePromise,
    Handle,
    Retry,
    SyncClient,
    SyncHandle,
    current_task,
)
from tidewheel.journal.events import Entry
from tidewheel.journal.public import PublicEvent
from tidewheel.journal.snapshot import RunSnapshot
from tidewheel.testing import Environment, ReplayReport, replay, verify


@dataclass
class Order:
    """An order."""

    id: str


@dataclass
class Receipt:
    """A receipt."""

    total: int


app = App("orders", strict_inputs=True, on_violation="park")


@app.task(retry=Retry(max_attempts=5, non_retryable=[ValueError, "Declined"]), timeout=30, process=False)
async def charge(order: Order) -> Receipt:
    """Stays an async function for everybody else."""
    return Receipt(len(order.id))


@app.task
def label(order: Order) -> str:
    """Stays a sync function for everybody else."""
    return order.id


@app.workflow(version="2026.1", queue="orders")
async def ship(ctx: Context, order: Order) -> bool:
    """A child run."""
    await ctx.sleep(dt.timedelta(days=1))
    return True


@app.workflow
async def fulfil(ctx: Context, order: Order) -> str:
    """Every verb."""
    assert_type(await charge(order), Receipt)
    assert_type(label(order), str)
    assert_type(ctx.invoke(charge, order), DurablePromise[Receipt])
    assert_type(await ctx.invoke(charge, order, key="once", retry=Retry(), timeout=5), Receipt)
    assert_type(await ctx.invoke(label, order, queue="slow"), str)
    assert_type(await ctx.start(ship, order), bool)
    assert_type(await ctx.run("quote", lambda: 42), int)
    assert_type(await ctx.run("fetch", charge, order), Receipt)
    assert_type(await ctx.signal("approval", timeout=60), Any)
    assert_type(await ctx.signal("approval", into=Order), Order)
    assert_type(await ctx.promise("external", into=int, timeout=dt.timedelta(hours=1)), int)
    assert_type(
        await asyncio.gather(ctx.invoke(charge, order), ctx.invoke(label, order)), tuple[Receipt, str]
    )
    async with ctx.join_set() as results:
        results.submit(charge, order)
        results.submit(ctx.start(label, order))
        async for result in results:
            assert_type(result, Any)
    assert_type(ctx.now(), dt.datetime)
    assert_type(ctx.random(), float)
    assert_type(ctx.uuid(), uuid.UUID)
    ctx.state["key"] = {"any": "json"}
    if ctx.run_id == "again":
        ctx.continue_as_new(order)
    assert_type(current_task(), CurrentTask)
    return order.id


async def scenario() -> None:
    """The test kit."""
    async with Environment(app) as env:
        env.fake(charge, lambda order: Receipt(1), takes=2)
        handle = await env.client.start(fulfil, Order("1"), run_id="order-1", idempotency_key="k")
        env.after(30, handle.signal, "approval", True)
        assert_type(await handle.result(timeout=60), str)
        assert_type(replay(fulfil, await handle.journal()), ReplayReport)
        assert verify(await handle.journal()) == []


async def service() -> None:
    """The client and its handles."""
    async with await Client.connect(store="sqlite:///orders.db", namespace="blue") as client:
        handle = await client.start(fulfil, Order("1"), run_id="order-1", idempotency_key="k", queue="q")
        assert_type(handle, Handle[str])
        assert_type(await client.start("fulfil", {"id": "1"}), Handle[Any])
        assert_type(client.handle("order-1:1"), Handle[Any])
        assert_type(handle.run_id, str)
        assert_type(handle.mismatch, bool)
        assert_type(await handle.result(timeout=dt.timedelta(minutes=1)), str)
        assert_type(await handle.status(), str)
        assert_type(await handle.describe(), RunSnapshot)
        assert_type(await handle.journal(), list[Entry])
        assert_type(await handle.events(), list[PublicEvent])
        assert_type(await handle.state(), dict[str, Any])
        await handle.signal("approval", {"by": "me"}, request_id="r-1")
        await handle.resolve("external", 1)
        await handle.reject("external", "no")
        assert_type(await client.publish_start(fulfil, Order("1")), Handle[str])
        assert_type(await client.publish_start("fulfil", {"id": "1"}, queue="slow"), Handle[Any])
        await handle.cancel(reason="no longer needed")
        assert_type([run.run_id for run in await client.runs(workflow="fulfil", open_only=True)], list[str])


def script() -> None:
    """The same, blocking."""
    with SyncClient.connect() as client:
        handle = client.start(fulfil, Order("1"))
        assert_type(handle, SyncHandle[str])
        assert_type(handle.result(60), str)
        assert_type(client.start("fulfil", {"id": "1"}), SyncHandle[Any])
        assert_type(client.publish_start(fulfil, Order("1"), run_id="order-1"), SyncHandle[str])
        assert_type(client.publish_start("fulfil", {"id": "1"}), SyncHandle[Any])
        assert_type(client.handle("order-1").describe(), RunSnapshot)
    with SyncClient.lazy("postgresql://db/orders", "amqp://mq", namespace="blue") as shared:
        assert_type(shared.start(fulfil, Order("1")), SyncHandle[str])
