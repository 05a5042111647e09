"""What the embedded default costs: steps, runs, fan-outs, and how soon another process is heard.

Everything is real: SQLite with ``synchronous=FULL``, the embedded broker, a worker and a keeper in this
process, and for the wake-up a client in another one. Times are medians; the machine's own
``fsync`` is shown beside them, since every commit waits for one.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tidewheel import App, Client, Context
from tidewheel.broker.opening import open_broker
from tidewheel.store.opening import open_store
from tidewheel.store.sqlite.store import SqliteStore
from tidewheel.workers.keeper import Keeper
from tidewheel.workers.process import running
from tidewheel.workers.worker import Worker

ROUNDS = 5
app = App("embedded")


@app.task
async def increment(number: int) -> int:
    """A step that does nothing."""
    return number + 1


@app.workflow
async def sequence(ctx: Context, steps: int) -> int:
    """One step after the other."""
    number = 0
    for _ in range(steps):
        number = await ctx.invoke(increment, number)
    return number


@app.workflow
async def fan_out(ctx: Context, steps: int) -> int:
    """All steps at once."""
    return sum(await asyncio.gather(*(ctx.invoke(increment, number) for number in range(steps))))


@app.workflow
async def heard(ctx: Context, signals: int) -> list[float]:
    """When each of some signals was heard, by this machine's clock."""
    times: list[float] = []
    for _ in range(signals):
        sent: float = await ctx.signal("ping")
        times.append(await ctx.run(f"at-{len(times)}", lambda at=sent: time.time() - at))
    return times


async def one_run(client: Client, workflow: object, size: int) -> float:
    """Seconds from the start of a run to its result."""
    began = time.perf_counter()
    handle = await client.start(workflow, size)  # type: ignore[call-overload]  # one of two workflows
    await handle.result()
    return time.perf_counter() - began


async def many_runs(client: Client, count: int, steps: int) -> float:
    """Seconds until *count* runs of *steps* steps, started at once, have all ended."""
    began = time.perf_counter()
    handles = await asyncio.gather(*(client.start(sequence, steps) for _ in range(count)))
    await asyncio.gather(*(handle.result() for handle in handles))
    return time.perf_counter() - began


async def wake_ups(client: Client, url: str, count: int) -> list[float]:
    """Seconds from the send of a signal in another process to the step that it let go on."""
    handle = await client.start(heard, count)
    sender = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "ping", url, handle.run_id, str(count)
    )
    times = await handle.result()
    await sender.wait()
    return times


async def ping(url: str, run_id: str, count: int) -> None:
    """Send signals with the time they were sent at, now and then."""
    async with await Client.connect(store=url) as client:
        handle = client.handle(run_id)
        for _ in range(count):
            await asyncio.sleep(0.1)
            await handle.signal("ping", time.time())


def fsync_ms(folder: Path) -> float:
    """What this machine takes to make a small write durable."""
    times = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(50):
            began = time.perf_counter()
            file.write(b"x" * 4096)
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


def show(what: str, value: str) -> None:
    """Print one figure."""
    print(f"  {what:<58} {value:>14}")


async def measure(folder: Path) -> None:
    """Print all figures."""
    url = f"sqlite:///{folder / 'bench.db'}"
    store = await open_store(url)
    broker = open_broker("embedded://", store_url=url)
    worker = Worker(app, store, broker)
    show("fsync of 4 KiB", f"{fsync_ms(folder):.2f} ms")
    async with running([worker, Keeper(store, broker)]), await Client.connect(store, broker) as client:
        await one_run(client, sequence, 50)
        step = statistics.median([await one_run(client, sequence, 500) / 500 for _ in range(ROUNDS)])
        show("one step of a sequence (1 commit)", f"{step * 1000:.2f} ms")
        fan = statistics.median([await one_run(client, fan_out, 1000) for _ in range(ROUNDS)])
        show("1,000 steps at once", f"{fan * 1000:.0f} ms")
        runs = statistics.median([await many_runs(client, 200, 5) for _ in range(ROUNDS)])
        show("200 runs of 5 steps, started at once", f"{1000 / runs:.0f} steps/s")
        times = sorted(await wake_ups(client, url, 100))
        show("signal of another process to the next step, median", f"{times[50] * 1000:.1f} ms")
        show("the slowest of 100", f"{times[-1] * 1000:.1f} ms")
        await one_run(client, sequence, 5)
        assert isinstance(store, SqliteStore)
        counters = store.counters
        before, commits = worker.services.writer.appends, counters.commits
        await one_run(client, sequence, 1000)
        show("appends for 1,000 steps", f"{worker.services.writer.appends - before:,}")
        show("transactions for 1,000 steps", f"{counters.commits - commits:,}")
    await broker.close()
    await store.close()


def main() -> None:
    """Measure, or be the other process."""
    if sys.argv[1:2] == ["ping"]:
        _, _, url, run_id, count = sys.argv
        asyncio.run(ping(url, run_id, int(count)))
        return
    print(json.dumps({"python": sys.version.split()[0], "cores": os.cpu_count()}))
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder)))


if __name__ == "__main__":
    main()
