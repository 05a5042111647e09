"""DBOS Transact: workflows on a queue that two worker processes serve, each on a core of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import Any

import psycopg
from dbos import DBOS, DBOSClient

from benchmarks.programs.answering import Watch, answer, begin, setting, wait_until

#: What did best on two cores: few threads, which fight less for the interpreter.
THREADS = 8
PROCESSES = 2
POLL_S = 0.05
QUEUE = "bench"


def launch(executor: str) -> None:
    """Begin to work in this process."""
    DBOS(
        config={
            "name": "bench",
            "system_database_url": setting("DATABASE"),
            "log_level": "ERROR",
            "sys_db_pool_size": 20,
            "executor_id": executor,
            "application_version": "1",
            "max_executor_threads": THREADS,
        }
    )
    DBOS.launch()


@DBOS.step()
def step(number: int) -> int:
    """Do nothing."""
    return number


@DBOS.workflow()
def sequence(steps: int) -> int:
    """One step after the other."""
    return sum(step(number) for number in range(steps))


@DBOS.step()
async def async_step(number: int) -> int:
    """Do nothing, in the event loop."""
    return number


@DBOS.workflow()
async def fan(steps: int) -> int:
    """All steps at once."""
    return sum(await asyncio.gather(*(async_step(number) for number in range(steps))))


def work(name: str) -> None:
    """Be a worker process."""
    launch(name)
    DBOS.register_queue(QUEUE, worker_concurrency=50, polling_interval_sec=POLL_S)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    signal.pause()


def start_workers() -> list[subprocess.Popen[str]]:
    """Start the worker processes, and wait until they work."""
    python = [sys.executable, "-m", "benchmarks.programs.dbos_program"]
    workers = [
        subprocess.Popen(  # noqa: S603 - this file
            ["taskset", "-c", str(core), *python, f"w{core}"],  # noqa: S607 - of the system
            stdout=subprocess.PIPE,
            text=True,
        )
        for core in range(min(PROCESSES, os.cpu_count() or 1))
    ]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    return workers


def main() -> None:
    """Answer; the first order decides whether there are worker processes or this one works by itself."""
    answers = begin()
    launch("here")
    sequence(5)
    workers: list[subprocess.Popen[str]] = []

    def many(runs: int, steps: int) -> dict[str, Any]:
        if not workers:
            DBOS.register_queue(QUEUE, worker_concurrency=50, polling_interval_sec=POLL_S)
            DBOS.destroy()
            workers.extend(start_workers())
        client = DBOSClient(system_database_url=setting("DATABASE"))
        options = {"workflow_name": sequence.__qualname__, "queue_name": QUEUE, "app_version": "1"}
        with psycopg.connect(setting("DATABASE"), autocommit=True) as connection:

            def done() -> int:
                row = connection.execute(
                    "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'"
                ).fetchone()
                assert row is not None
                return int(row[0])

            before = done()
            watch = Watch()
            for _ in range(runs):
                client.enqueue(options, steps)
            wait_until(lambda: done() - before >= runs, every_s=0.05)
            return {"seconds": watch.seconds}

    def latency(repeats: int, steps: int) -> dict[str, Any]:
        """Direct calls in this process: what is quickest."""
        latencies: list[float] = []
        for _ in range(repeats):
            watch = Watch()
            assert sequence(steps) == sum(range(steps))
            latencies.append(watch.seconds)
        return {"latencies": latencies}

    def long(steps: int) -> dict[str, Any]:
        watch = Watch()
        assert sequence(steps) == sum(range(steps))
        return {"seconds": watch.seconds}

    def fan_out(tasks: int) -> dict[str, Any]:
        async def go() -> float:
            await fan(2)
            watch = Watch()
            assert await fan(tasks) == sum(range(tasks))
            return watch.seconds

        return {"seconds": asyncio.run(go())}

    answer(answers, {"many": many, "latency": latency, "long": long, "fan_out": fan_out})
    os._exit(0)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(sys.argv[1])
    else:
        main()
