"""From a run to its snapshot: what relay and projector tell links to the run that they tell of."""

from __future__ import annotations

import asyncio

from opentelemetry.trace import SpanKind

from tests.unit.sdk.twins import BEGAN_S
from tests.unit.telemetry.recording import Recording, attributes, linked, span_id, trace_id
from tidewheel import App, Client, Context
from tidewheel.broker.memory import MemoryBroker
from tidewheel.broker.topology import EVENTS, Binding, Queue, Topology, bus_topology
from tidewheel.broker.watched import watched
from tidewheel.outbox.relay import Relay
from tidewheel.outbox.watching import BacklogWatch
from tidewheel.projector.projector import Projector
from tidewheel.store.memory import MemoryStore
from tidewheel.store.records import RunRef
from tidewheel.telemetry import names
from tidewheel.telemetry.context import of_headers
from tidewheel.workers.worker import Worker

LOOKS_MAX = 10_000

app = App("piped")


@app.task
async def pick(number: int) -> int:
    """A step."""
    return number


@app.workflow
async def order(ctx: Context, number: int) -> int:
    """One step."""
    return await ctx.invoke(pick, number)


def a_store() -> MemoryStore:
    """Return a store whose time is the loop's."""
    return MemoryStore(clock=lambda: BEGAN_S + asyncio.get_running_loop().time(), seed=1)


async def snapshot_says(store: MemoryStore, status: str) -> None:
    """Return when the snapshot of the run is there, with this status."""
    for _ in range(LOOKS_MAX):
        snapshot = await store.snapshots.read(RunRef("default", "r"))
        if snapshot is not None and snapshot.status == status:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"the run is not {status} in any snapshot")


async def test_a_run_can_be_followed_to_its_snapshot(recording: Recording) -> None:
    """Publishing and projecting are later, and for many runs: they link, each hop to the one before."""
    store, broker = a_store(), watched(MemoryBroker(), "memory")
    await broker.declare(bus_topology())
    await broker.declare(
        Topology(queues=(Queue(name="all"),), bindings=(Binding(EVENTS, "all", "default.#"),))
    )
    worker = Worker(app, store, broker, secret=b"test", threads=False)
    relay, projector = Relay(store, broker), Projector(store, broker, shards=1)
    roles = (projector, relay, worker)
    for role in roles:
        await role.start()
    client = await Client.connect(store, broker)

    await (await client.start(order, 7, run_id="r")).result()
    await snapshot_says(store, "COMPLETED")
    async with broker.consume("all", prefetch=100) as deliveries:
        messages = [(await anext(deliveries)).message for _ in range(await broker.depth("all"))]
    await client.close()
    for role in reversed(roles):
        await role.stop()

    start = recording.span("start order")
    sent, projected = recording.spans("send tidewheel.events"), recording.spans("process tidewheel.events")
    of_the_run = {span_id(span) for span in recording.spans() if trace_id(span) == trace_id(start)}
    assert {span.kind for span in sent} == {SpanKind.PRODUCER}
    assert {span.kind for span in projected} == {SpanKind.CONSUMER}
    assert all(span.parent is None and linked(span) <= of_the_run for span in sent)
    assert all(linked(span) for span in sent)
    assert set().union(*map(linked, projected)) == {span_id(span) for span in sent}
    for message in messages:
        happened, published = of_headers(message.headers, "ce-"), of_headers(message.headers)
        assert happened is not None
        assert published is not None
        assert int(happened.trace_id, 16) == trace_id(start)
        assert int(published.span_id, 16) in {span_id(span) for span in sent}
    assert sum(attributes(span)[names.BATCH] for span in projected) == len(messages)


async def test_figures_of_the_pipeline_are_read_when_they_are_sent(recording: Recording) -> None:
    """What relay, projector and outbox count is what is told of them."""
    store, broker = a_store(), watched(MemoryBroker(), "memory")
    client = await Client.connect(store, broker)
    await client.start(order, 7, run_id="r")
    await client.close()
    watch = BacklogWatch(store.outbox)
    await asyncio.sleep(3)
    await watch.look()
    waiting = recording.figures()
    relay, projector = Relay(store, broker), Projector(store, broker, shards=1)
    await projector.start()
    await relay.start()
    await snapshot_says(store, "RUNNING")
    await watch.look()
    await relay.stop()
    await projector.stop()

    figures = recording.figures()

    assert waiting["tidewheel.outbox.backlog"] == [
        ({names.OUTCOME: "pending"}, 1),
        ({names.OUTCOME: "dead"}, 0),
    ]
    ((_, age),) = waiting["tidewheel.outbox.age"]
    assert age == 3
    assert figures["tidewheel.outbox.backlog"][0][1] == 0
    assert ({names.OUTCOME: "taken"}, 1) in figures["tidewheel.relay.events"]
    assert ({names.OUTCOME: "taken"}, 1) in figures["tidewheel.projector.events"]
    assert figures["tidewheel.projector.gaps"] == [({}, 0)]
    ((_, lag),) = figures["tidewheel.projector.lag"]
    assert lag >= 3
