"""Dramatiq: messages that send the next one, over RabbitMQ with confirms; each task INSERTs its result."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import uuid
from typing import Any

import dramatiq
import psycopg
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from benchmarks.programs.answering import Watch, answer, begin, setting, wait_until

QUEUE = "bench"
PROCESSES, THREADS = 2, 4

broker = RabbitmqBroker(url=setting("BROKER"), confirm_delivery=True)
broker.middleware = [one for one in broker.middleware if type(one).__name__ != "Prometheus"]
dramatiq.set_broker(broker)
local = threading.local()


@dramatiq.actor(queue_name=QUEUE)
def step(run: str, number: int, steps: int) -> None:
    """Write a result, and send the next step."""
    if not hasattr(local, "connection"):
        local.connection = psycopg.connect(setting("DATABASE"), autocommit=True, prepare_threshold=1)
    local.connection.execute(
        "INSERT INTO results (run, number, result) VALUES (%s, %s, '{}') ON CONFLICT DO NOTHING",
        (run, number),
    )
    if number + 1 < steps:
        step.send(run, number + 1, steps)


def main() -> None:
    """Make the table, start the workers and answer."""
    answers = begin()
    connection = psycopg.connect(setting("DATABASE"), autocommit=True)
    connection.execute("CREATE TABLE results (run uuid, number int, result jsonb, PRIMARY KEY (run, number))")
    command = [sys.executable, "-m", "dramatiq", "benchmarks.programs.dramatiq_program", "--skip-logging"]
    subprocess.Popen(  # noqa: S603 - what was installed for this
        [*command, "-p", str(PROCESSES), "-t", str(THREADS)], stdin=subprocess.DEVNULL
    )

    def done() -> int:
        row = connection.execute("SELECT count(*) FROM results").fetchone()
        assert row is not None
        return int(row[0])

    def many(runs: int, steps: int) -> dict[str, Any]:
        before = done()
        watch = Watch()
        for _ in range(runs):
            step.send(str(uuid.uuid4()), 0, steps)
        wait_until(lambda: done() - before >= runs * steps, every_s=0.05)
        return {"seconds": watch.seconds}

    many(5, 5)

    def latency(repeats: int, steps: int) -> dict[str, Any]:
        begun = done()
        latencies: list[float] = []
        for number in range(repeats):
            wanted = begun + (number + 1) * steps
            watch = Watch()
            step.send(str(uuid.uuid4()), 0, steps)
            while done() < wanted:
                time.sleep(0.001)
            latencies.append(watch.seconds)
        return {"latencies": latencies}

    answer(answers, {"many": many, "latency": latency})


if __name__ == "__main__":
    main()
