"""What a second worker process brings: steps of 20 ms CPU, executed by one process and by two.

The store and the broker are those of ``TIDEWHEEL_STORE`` and ``TIDEWHEEL_BROKER``, else the embedded default
in a folder of its own. Workers are started as users start them, ``tidewheel worker --processes N``,
beside a keeper; nothing else is told to anybody. On a machine with busy cores the ratio says little;
the CPU time of the workers per step, which is shown beside it, says what the second one costs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from tidewheel import App, Client, Context
from tidewheel.sdk.settings import ConnectionSettings
from tidewheel.store.opening import open_store
from tidewheel.store.protocol import Store
from tidewheel.workers.config import cores

STEP_CPU_S = 0.020
RUNS, STEPS = 150, 5
#: The machine is warm after so many runs.
WARMING_RUNS = 4
START_TIMEOUT_S = 60.0

app = App("scaling")


@app.task
def burn(seconds: float) -> int:
    """Need the CPU for so long, and say in which process."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
    return os.getpid()


@app.workflow
async def burns(ctx: Context, steps: int) -> list[int]:
    """Steps one after the other."""
    return [await ctx.invoke(burn, STEP_CPU_S) for _ in range(steps)]


@contextlib.contextmanager
def process(*arguments: str, settings: ConnectionSettings, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command while the block lasts."""
    place = ["--store", settings.store, "--broker", settings.broker, "--namespace", settings.namespace]
    with log.open("ab") as out:
        running = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "tidewheel.cli.main", *arguments, *place],
            cwd=Path(__file__).parent,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        yield running
    finally:
        running.terminate()
        running.wait()


@contextlib.asynccontextmanager
async def fleet(
    count: int, settings: ConnectionSettings, log: Path
) -> AsyncIterator[tuple[Client, list[int]]]:
    """Run a keeper and *count* worker processes while the block lasts; give a client, and the processes."""
    worker = ("worker", f"{Path(__file__).name}:app", "--processes", str(count))
    with (
        process("keeper", settings=settings, log=log),
        process(*worker, settings=settings, log=log) as workers,
    ):
        store = await open_store(settings.store)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while len(pids := await _workers(store, settings.namespace)) < count:
                    if workers.poll() is not None:
                        raise SystemExit(f"the workers did not start: {_said(log)}")
                    await asyncio.sleep(0.05)
        finally:
            await store.close()
        connected = await Client.connect(settings.store, settings.broker, settings.namespace)
        async with connected as client:
            yield client, pids


async def _workers(store: Store, namespace: str) -> list[int]:
    return [worker.pid for worker in await store.workers() if worker.namespace == namespace]


def _said(log: Path) -> str:
    return log.read_text("utf-8")


async def throughput(client: Client, pids: list[int]) -> tuple[float, Counter[int], float]:
    """Return steps a second, how many of them each process has executed, and the CPU seconds of each step."""
    await client.listen()
    for handle in [await client.start(burns, 1) for _ in range(WARMING_RUNS)]:
        await handle.result(timeout=START_TIMEOUT_S)
    cpu_before = sum(map(cpu_s, pids))
    began = time.perf_counter()
    handles = await asyncio.gather(*(client.start(burns, STEPS) for _ in range(RUNS)))
    results = await asyncio.gather(*(handle.result() for handle in handles))
    took = time.perf_counter() - began
    cpu_of_step_s = (sum(map(cpu_s, pids)) - cpu_before) / (RUNS * STEPS)
    return RUNS * STEPS / took, Counter(pid for found in results for pid in found), cpu_of_step_s


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used, user's and system's."""
    user, system = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


async def measure(settings: ConnectionSettings, log: Path) -> None:
    """Print the figures, and the ratio."""
    rates: dict[int, float] = {}
    for count in (1, 2):
        namespace = f"scaling-{os.getpid()}-{count}"
        there = ConnectionSettings(store=settings.store, broker=settings.broker, namespace=namespace)
        async with fleet(count, there, log) as (client, pids):
            rates[count], shares, cpu_of_step_s = await throughput(client, pids)
        shared = ", ".join(f"{share:,}" for share in sorted(shares.values(), reverse=True))
        what = f"{count} worker process{'es' if count > 1 else ''}"
        figures = f"{rates[count]:7.1f} steps/s   {cpu_of_step_s * 1000:5.1f} ms CPU a step"
        print(f"  {what:<20} {figures}   by process: {shared}")
    print(f"  {'ratio':<20} {rates[2] / rates[1]:7.2f}")


def main() -> None:
    """Measure."""
    print(json.dumps({"python": sys.version.split()[0], "cores": cores(), "load": os.getloadavg()[0]}))
    with tempfile.TemporaryDirectory() as folder:
        given = ConnectionSettings.from_environment()
        if "TIDEWHEEL_STORE" not in os.environ:
            given = ConnectionSettings(store=f"sqlite:///{folder}/bench.db")
        asyncio.run(measure(given, Path(folder, "fleet.log")))


if __name__ == "__main__":
    main()
