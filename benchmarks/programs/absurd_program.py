"""Absurd: its functions in Postgres, and two worker processes of its async SDK."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
from absurd_sdk import Absurd, AsyncAbsurd

from benchmarks.programs.answering import Watch, answer, begin, setting, wait_until

PROCESSES = 2
CONCURRENCY = 8
#: Its default is 0.25 s.
POLL_S = 0.02
QUEUE = "default"


def work() -> None:
    """Be a worker process."""

    async def go() -> None:
        app = AsyncAbsurd(setting("DATABASE"))

        @app.register_task(name="sequence")
        async def sequence(params: dict[str, int], ctx: Any) -> int:
            total = 0
            for number in range(params["steps"]):

                async def step(number: int = number) -> int:
                    return number

                total += await ctx.step(f"step{number}", step)
            return total

        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await app.start_worker(concurrency=CONCURRENCY, batch_size=CONCURRENCY, poll_interval=POLL_S)

    asyncio.run(go())


def main() -> None:
    """Make its tables, start the workers and answer."""
    answers = begin()
    with psycopg.connect(setting("DATABASE"), autocommit=True) as connection:
        connection.execute(Path(setting("ABSURD_SQL")).read_bytes())
    app = Absurd(setting("DATABASE"))
    app.create_queue(QUEUE)
    command = [sys.executable, "-m", "benchmarks.programs.absurd_program", "worker"]
    workers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - this file
        for _ in range(PROCESSES)
    ]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    connection = psycopg.connect(setting("DATABASE"), autocommit=True)

    def done() -> int:
        row = connection.execute("SELECT count(*) FROM absurd.t_default WHERE state = 'completed'").fetchone()
        assert row is not None
        return int(row[0])

    def go(runs: int, steps: int, every_s: float) -> float:
        before = done()
        watch = Watch()
        for _ in range(runs):
            app.spawn("sequence", {"steps": steps}, queue=QUEUE)
        wait_until(lambda: done() - before >= runs, every_s=every_s)
        return watch.seconds

    go(5, 5, 0.02)

    def many(runs: int, steps: int) -> dict[str, Any]:
        return {"seconds": go(runs, steps, 0.05)}

    def latency(repeats: int, steps: int) -> dict[str, Any]:
        return {"latencies": [go(1, steps, 0.001) for _ in range(repeats)]}

    def long(steps: int) -> dict[str, Any]:
        return {"seconds": go(1, steps, 0.01)}

    answer(answers, {"many": many, "latency": latency, "long": long})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work()
    else:
        main()
