"""What Postgres, RabbitMQ and their drivers can do here, without an engine between them."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import psycopg
from psycopg import pq

from benchmarks.programs.answering import Watch, answer, begin, setting
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.opening import open_broker
from tidewheel.broker.topology import Queue, Topology

CONNECTIONS = 16
BATCH = 500
IN_FLIGHT = 200
#: As the runs of W2 have.
RUN_STEPS = 5
_PAYLOAD = '{"task": "step", "attempt": 1, "result": {"value": 42}, "note": "' + "x" * 80 + '"}'
_TABLE = """
CREATE TABLE events (run uuid, seq int, type text, payload jsonb, at timestamptz DEFAULT now(),
                     PRIMARY KEY (run, seq))
"""
_RUNS = "CREATE TABLE runs (run uuid PRIMARY KEY, seq int, token bytea, steps text) WITH (fillfactor = 50)"
_OUTBOX = "CREATE TABLE outbox (run uuid, seq int, PRIMARY KEY (run, seq))"
_INSERT = "INSERT INTO events (run, seq, type, payload) VALUES (%s, %s, 'Completed', %s)"
#: The least that a durable step can write: its run moves on, its events, and what others are to be told of.
_STEP = b"""
WITH moved AS (UPDATE runs SET seq = seq + 1, token = $2, steps = $3 WHERE run = $1 RETURNING run, seq),
     owed AS (INSERT INTO outbox (run, seq) SELECT run, seq FROM moved)
INSERT INTO events (run, seq, type, payload) SELECT run, seq, 'Completed', $4 FROM moved
"""
_COPY = "COPY events (run, seq, type, payload) FROM STDIN"


def main() -> None:
    """Make a table like a journal and answer."""
    answers = begin()
    url = setting("DATABASE")
    with psycopg.connect(url) as connection:
        for table in (_TABLE, _RUNS, _OUTBOX):
            connection.execute(table)

    def limits(seconds: float) -> dict[str, Any]:
        step_ms = _step_ms(url, seconds)
        hop_ms = asyncio.run(_hop_ms(seconds, Queue(name="hops")))
        reply_ms = asyncio.run(_hop_ms(seconds, Queue(name="replies", kind="classic"), lasting=False))
        return {
            "round_trip_ms": _round_trip_ms(url, seconds),
            "step_ms": step_ms,
            "commits_s": asyncio.run(_commits_s(url, seconds)),
            "events_s": _events_s(url, seconds),
            "publishes_s": asyncio.run(_publishes_s(seconds)),
            "hop_ms": hop_ms,
            "run_ms": hop_ms + (RUN_STEPS + 1) * step_ms + reply_ms,
        }

    answer(answers, {"limits": limits})


def _round_trip_ms(url: str, seconds: float) -> float:
    """What one INSERT with its COMMIT takes, one after the other."""
    done, watch = 0, Watch()
    with psycopg.connect(url, autocommit=True, prepare_threshold=1) as connection:
        while watch.seconds < seconds:
            connection.execute(_INSERT, (uuid.uuid4(), 1, _PAYLOAD))
            done += 1
    return watch.seconds / done * 1000


def _step_ms(url: str, seconds: float) -> float:
    """What it takes to write the rows of one step, one after the other, with the driver's plainest call."""
    run = uuid.uuid4()
    done, watch = 0, Watch()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("INSERT INTO runs (run, seq) VALUES (%s, 0)", (run,))
        wire = connection.pgconn
        wire.prepare(b"step", _STEP)
        arguments = [str(run).encode(), b"\\x" + b"ab" * 16, _PAYLOAD.encode(), _PAYLOAD.encode()]
        while watch.seconds < seconds:
            if wire.exec_prepared(b"step", arguments).status != pq.ExecStatus.COMMAND_OK:
                raise RuntimeError(wire.get_error_message())
            done += 1
    return watch.seconds / done * 1000


async def _commits_s(url: str, seconds: float) -> float:
    """How many of those several connections do side by side."""
    watch = Watch()

    async def insert() -> int:
        done = 0
        async with await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=1) as one:
            while watch.seconds < seconds:
                await one.execute(_INSERT, (uuid.uuid4(), 1, _PAYLOAD))
                done += 1
        return done

    return sum(await asyncio.gather(*(insert() for _ in range(CONNECTIONS)))) / watch.seconds


def _events_s(url: str, seconds: float) -> float:
    """How many rows are durable in a second if many of them share a commit."""
    done, watch = 0, Watch()
    with psycopg.connect(url) as connection:
        while watch.seconds < seconds:
            run = str(uuid.uuid4())
            with connection.cursor().copy(_COPY) as copy:
                for seq in range(BATCH):
                    copy.write_row((run, seq, "Completed", _PAYLOAD))
            connection.commit()
            done += BATCH
    return done / watch.seconds


async def _publishes_s(seconds: float) -> float:
    """How many persistent messages a quorum queue confirms."""
    broker = open_broker(setting("BROKER"), store_url=setting("DATABASE"))
    await broker.declare(Topology(queues=(Queue(name="limits"),)))
    done, watch = 0, Watch()
    while watch.seconds < seconds:
        batch = [
            Publication(message=Message(body=_PAYLOAD.encode(), message_id=str(number)), routing_key="limits")
            for number in range(IN_FLIGHT)
        ]
        await broker.publish(batch)
        done += len(batch)
    rate = done / watch.seconds
    await broker.close()
    return rate


async def _hop_ms(seconds: float, queue: Queue, *, lasting: bool = True) -> float:
    """What a message takes from who publishes it to who consumes it, one after the other."""
    broker = open_broker(setting("BROKER"), store_url=setting("DATABASE"))
    await broker.declare(Topology(queues=(queue,)))
    done, watch = 0, Watch()
    async with broker.consume(queue.name, prefetch=1) as deliveries:
        while watch.seconds < seconds:
            message = Message(body=_PAYLOAD.encode(), message_id=str(done))
            publication = Publication(message=message, routing_key=queue.name, lasting=lasting)
            confirmed = asyncio.ensure_future(broker.publish([publication]))
            delivery = await anext(aiter(deliveries))
            done += 1
            await asyncio.gather(confirmed, delivery.acknowledge())
    hop_ms = watch.seconds / done * 1000
    await broker.close()
    return hop_ms


if __name__ == "__main__":
    main()
