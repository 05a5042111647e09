"""A run from its start to its snapshot, in one process; says what of OpenTelemetry was imported for it."""

from __future__ import annotations

import asyncio
import sys

from tidewheel import App, Client, Context
from tidewheel.broker.memory import MemoryBroker
from tidewheel.outbox.relay import Relay
from tidewheel.projector.projector import Projector
from tidewheel.store.memory import MemoryStore
from tidewheel.store.records import RunRef
from tidewheel.workers.worker import Worker

app = App("silent")


@app.workflow
async def order(ctx: Context, number: int) -> int:
    """Nothing much."""
    return number


async def main() -> None:
    """Run it."""
    store, broker = MemoryStore(), MemoryBroker()
    worker, relay = Worker(app, store, broker), Relay(store, broker)
    roles = (Projector(store, broker, shards=1), relay, worker)
    for role in roles:
        await role.start()
    client = await Client.connect(store, broker)
    sys.stdout.write(f"{await (await client.start(order, 1, run_id='r')).result()}\n")
    for _ in range(1_000):
        if await store.snapshots.read(RunRef("default", "r")) is not None:
            break
        await asyncio.sleep(0.01)
    await client.close()
    for role in reversed(roles):
        await role.stop()


asyncio.run(main())
sys.stdout.write(f"{[name for name in sys.modules if 'opentelemetry' in name]}\n")
