"""What Postgres, RabbitMQ and their drivers can do here, without an engine between them."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import psycopg

from benchmarks.programs.answering import Watch, answer, begin, setting
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.opening import open_broker
from tidewheel.broker.topology import Queue, Topology

CONNECTIONS = 16
BATCH = 500
IN_FLIGHT = 200
_PAYLOAD = '{"task": "step", "attempt": 1, "result": {"value": 42}, "note": "' + "x" * 80 + '"}'
_TABLE = """
CREATE TABLE events (run uuid, seq int, type text, payload jsonb, at timestamptz DEFAULT now(),
                     PRIMARY KEY (run, seq))
"""
_INSERT = "INSERT INTO events (run, seq, type, payload) VALUES (%s, %s, 'Completed', %s)"
_COPY = "COPY events (run, seq, type, payload) FROM STDIN"


def main() -> None:
    """Make a table like a journal and answer."""
    answers = begin()
    url = setting("DATABASE")
    with psycopg.connect(url) as connection:
        connection.execute(_TABLE)

    def limits(seconds: float) -> dict[str, Any]:
        return {
            "round_trip_ms": _round_trip_ms(url, seconds),
            "commits_s": asyncio.run(_commits_s(url, seconds)),
            "events_s": _events_s(url, seconds),
            "publishes_s": asyncio.run(_publishes_s(seconds)),
            "hop_ms": asyncio.run(_hop_ms(seconds)),
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


async def _hop_ms(seconds: float) -> float:
    """What a persistent message takes from who publishes it to who consumes it, one after the other."""
    broker = open_broker(setting("BROKER"), store_url=setting("DATABASE"))
    await broker.declare(Topology(queues=(Queue(name="hops"),)))
    done, watch = 0, Watch()
    async with broker.consume("hops", prefetch=1) as deliveries:
        while watch.seconds < seconds:
            message = Message(body=_PAYLOAD.encode(), message_id=str(done))
            confirmed = asyncio.ensure_future(
                broker.publish([Publication(message=message, routing_key="hops")])
            )
            delivery = await anext(aiter(deliveries))
            done += 1
            await asyncio.gather(confirmed, delivery.acknowledge())
    hop_ms = watch.seconds / done * 1000
    await broker.close()
    return hop_ms


if __name__ == "__main__":
    main()
