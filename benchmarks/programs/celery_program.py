"""Celery: chains of tasks over RabbitMQ with confirms and late acknowledgements, results in Postgres."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import psycopg
from celery import Celery, chain, group

from benchmarks.programs.answering import Watch, answer, begin, setting, wait_until

QUEUE = "bench"
PROCESSES = 2
#: How often a result is asked for; its default is 0.5 s.
POLL_S = 0.005

app = Celery(
    "benchmarks.programs.celery_program",
    broker=setting("BROKER"),
    backend="db+" + setting("DATABASE").replace("postgresql://", "postgresql+psycopg2://"),
)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=32,
    broker_transport_options={"confirm_publish": True},
    broker_connection_retry_on_startup=True,
    task_default_queue=QUEUE,
    task_ignore_result=False,
    result_expires=None,
    worker_hijack_root_logger=False,
    worker_send_task_events=False,
    database_short_lived_sessions=False,
    database_engine_options={"pool_size": 5},
)


@app.task
def step(total: int, number: int = 1) -> int:
    """Do next to nothing."""
    return total + number


def chained(steps: int) -> Any:
    """Return a chain of so many tasks."""
    return chain(step.s(0, 1), *(step.s(1) for _ in range(steps - 1)))


def main() -> None:
    """Start the worker and answer."""
    answers = begin()
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.programs.celery_program", "worker"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"]
    subprocess.Popen(  # noqa: S603 - what was installed for this
        [*command, *quiet, "-P", "prefork", "-c", str(PROCESSES), "-Q", QUEUE], stdin=subprocess.DEVNULL
    )
    assert step.delay(1, 1).get(interval=0.05, timeout=60) == 2
    connection = psycopg.connect(setting("DATABASE"), autocommit=True)

    def done() -> int:
        row = connection.execute("SELECT count(*) FROM celery_taskmeta WHERE status = 'SUCCESS'").fetchone()
        assert row is not None
        return int(row[0])

    def many(runs: int, steps: int) -> dict[str, Any]:
        before = done()
        watch = Watch()
        for _ in range(runs):
            chained(steps).apply_async()
        wait_until(lambda: done() - before >= runs * steps, every_s=0.05)
        return {"seconds": watch.seconds}

    def latency(repeats: int, steps: int) -> dict[str, Any]:
        latencies: list[float] = []
        for _ in range(repeats):
            watch = Watch()
            assert chained(steps).apply_async().get(interval=POLL_S) == steps
            latencies.append(watch.seconds)
        return {"latencies": latencies}

    def fan_out(tasks: int, *, queued: bool = False) -> dict[str, Any]:
        """A group; that all results are there is seen in the table, which is quicker than gathering them."""
        assert queued, "every task of Celery's goes over a queue"
        before = done()
        watch = Watch()
        group(step.s(number) for number in range(tasks)).apply_async()
        wait_until(lambda: done() - before >= tasks, every_s=0.01)
        return {"seconds": watch.seconds}

    answer(answers, {"many": many, "latency": latency, "fan_out": fan_out})


if __name__ == "__main__":
    main()
