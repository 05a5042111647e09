"""A consumer of the event bus: hears everything, and says how late it came.

It is given orders on its standard input. An order is a number: so many events are waited for, and then it
says how many came, when the last of them did, and how late each was.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from benchmarks.programs.answering import setting
from tidewheel.broker.bus import read_event
from tidewheel.broker.opening import open_broker
from tidewheel.broker.topology import EVENTS, Binding, Queue, Topology, bus_topology

QUEUE = "bench.audit"
PREFETCH = 500
PATIENCE_S = 120.0


async def consume() -> None:
    """Hear events, and answer orders."""
    broker = open_broker(setting("BROKER"), store_url=setting("STORE"))
    await broker.declare(bus_topology())
    queue = Topology(queues=(Queue(name=QUEUE),), bindings=(Binding(EVENTS, QUEUE, "#"),))
    await broker.declare(queue)
    lags_s: list[float] = []
    last_s = 0.0

    async def hear() -> None:
        nonlocal last_s
        async with broker.consume(QUEUE, prefetch=PREFETCH) as deliveries:
            async for delivery in deliveries:
                _, event = read_event(delivery.message)
                last_s = time.time()
                assert event.emitted_at is not None
                lags_s.append(last_s - event.emitted_at.timestamp())
                await delivery.acknowledge()

    hearing = asyncio.create_task(hear())
    print(json.dumps({"ready": True}), flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        async with asyncio.timeout(PATIENCE_S):
            while len(lags_s) < int(line):  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.005)
        ordered = sorted(lags_s)
        print(
            json.dumps({"events": len(ordered), "last_s": last_s, "lags_s": ordered}),
            flush=True,
        )
        lags_s.clear()
    hearing.cancel()
    await broker.close()


if __name__ == "__main__":
    asyncio.run(consume())
