"""Transports of kombu's own lack what the table says, and nothing else: every word is tried."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.broker.harness import QUIET_S, comes_nothing, next_of, text_of, texts_of, to
from tidewheel.broker.errors import Unroutable
from tidewheel.broker.kombu_bridge import KombuBroker
from tidewheel.broker.kombu_transports import ABILITIES, LACKS, lacks
from tidewheel.broker.kombu_wire import Target
from tidewheel.broker.message import REASON, Message, Publication
from tidewheel.broker.topology import Binding, Exchange, Queue, Topology

TOPOLOGY = Topology(
    exchanges=(Exchange("all", "fanout"),),
    queues=(
        Queue(name="work", delivery_limit=1, dead_letter_queue="work.dlq"),
        Queue(name="work.dlq"),
        Queue(name="plain"),
        Queue(name="short", ttl_s=0.05),
    ),
    bindings=(Binding("all", "plain"),),
)
#: Another process, which publishes over the exchange and has declared nothing.
OTHER = """
import asyncio, json, sys
from tidewheel.broker.errors import Unroutable
from tidewheel.broker.kombu_bridge import KombuBroker
from tidewheel.broker.kombu_wire import Target
from tidewheel.broker.message import Message, Publication

async def main():
    broker = KombuBroker(Target(**json.loads(sys.argv[1])))
    message = Message(body=b"from afar", message_id="1")
    await broker.publish([Publication(message=message, routing_key="", exchange="all")])
    await broker.close()

asyncio.run(main())
"""


@pytest.fixture(params=["memory", "filesystem"])
def given(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """What a target of one of these transports is made of."""
    folders = ("data_folder_in", "data_folder_out", "processed_folder", "control_folder")
    if request.param == "memory":
        return {"transport": "memory"}
    for name in ("messages", "processed", "control"):
        (tmp_path / name).mkdir()
    places = ("messages", "messages", "processed", "control")
    options = {folder: str(tmp_path / place) for folder, place in zip(folders, places, strict=True)}
    return {"url": "filesystem://", "options": options}


@asynccontextmanager
async def connected(given: dict[str, Any]) -> AsyncIterator[KombuBroker]:
    """Return a block with a broker that has all queues, and nothing in them."""
    broker = KombuBroker(Target(**given))
    for queue in TOPOLOGY.queues:
        await broker.delete_queue(queue.name)
    await broker.declare(TOPOLOGY)
    try:
        yield broker
    finally:
        await broker.close()


async def counts(broker: KombuBroker, _: dict[str, Any]) -> bool:
    """Release a message, and look what it says when it comes again."""
    await broker.publish([to("plain")])
    async with broker.consume("plain", prefetch=1) as deliveries:
        await (await next_of(deliveries)).release()
        return (await next_of(deliveries)).earlier_deliveries == 1


async def dead_letters(broker: KombuBroker, _: dict[str, Any]) -> bool:
    """Bury a message, and look for it."""
    await broker.publish([to("work")])
    async with broker.consume("work", prefetch=1) as deliveries:
        await (await next_of(deliveries)).bury("no good")
    async with broker.consume("work.dlq", prefetch=1) as dead:
        return not await comes_nothing(dead)


async def delivery_limit(broker: KombuBroker, _: dict[str, Any]) -> bool:
    """Release a message as often as it may be delivered."""
    await broker.publish([to("work")])
    async with broker.consume("work", prefetch=1) as deliveries:
        await (await next_of(deliveries)).release()
        return await comes_nothing(deliveries)


async def further_keys(broker: KombuBroker, _: dict[str, Any]) -> bool:
    """Publish by a key that nothing is bound to, and by one that a queue is."""
    exchange = Exchange("events", "topic")
    await broker.declare(Topology(exchanges=(exchange,), bindings=(Binding("events", "plain", "b.*"),)))
    message = Message(body=b"", message_id="1")
    publication = Publication(message=message, exchange="events", routing_key="a.a", also=("b.b",))
    with contextlib.suppress(Unroutable):
        await broker.publish([publication])
    async with broker.consume("plain", prefetch=1) as deliveries:
        return not await comes_nothing(deliveries)


async def order(broker: KombuBroker, _: dict[str, Any]) -> bool:
    """Publish many at once."""
    texts = [str(number) for number in range(50)]
    await broker.publish([to("plain", text) for text in texts])
    async with broker.consume("plain", prefetch=50) as deliveries:
        return await texts_of(deliveries, 50) == texts


async def place(broker: KombuBroker, _: dict[str, Any]) -> bool:
    """Release the first of several."""
    for text in ("1", "2", "3"):
        await broker.publish([to("plain", text)])
        await asyncio.sleep(0.002)  # so that also names by the millisecond sort
    async with broker.consume("plain", prefetch=1) as deliveries:
        first = await next_of(deliveries)
        await first.release()
        return text_of(await next_of(deliveries)) == text_of(first)


async def reasons(broker: KombuBroker, _: dict[str, Any]) -> bool:
    """Bury a message, and look what it says."""
    await broker.publish([to("work")])
    async with broker.consume("work", prefetch=1) as deliveries:
        await (await next_of(deliveries)).bury("no good")
    async with broker.consume("work.dlq", prefetch=1) as dead:
        if await comes_nothing(dead):
            return False
    async with broker.consume("work.dlq", prefetch=1) as dead:
        return (await next_of(dead)).message.headers.get(REASON) == "no good"


async def redelivery(broker: KombuBroker, given: dict[str, Any]) -> bool:
    """Take a message with a connection that then does nothing more, as that of a dead process."""
    await broker.publish([to("plain")])
    taken: list[object] = []

    def take() -> Any:
        wire = Target(**given).connect()
        wire.channel.basic_qos(0, 1, False)
        wire.consume("plain", taken.append)
        while not taken:
            wire.drain()
        return wire

    wire = await asyncio.to_thread(take)
    async with broker.consume("plain", prefetch=1) as deliveries:
        came = not await comes_nothing(deliveries)
    await asyncio.to_thread(wire.close)
    return came


async def sharing(broker: KombuBroker, given: dict[str, Any]) -> bool:
    """Let another process publish, which has declared nothing."""
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OTHER, json.dumps(given), stderr=asyncio.subprocess.DEVNULL
    )
    await other.wait()
    return await broker.depth("plain") == 1


async def single_consumer(broker: KombuBroker, given: dict[str, Any]) -> bool:
    """Let two consume a queue that is for one."""
    await broker.declare(Topology(queues=(Queue(name="single", single_consumer=True),)))
    async with (
        connected(given) as other,
        broker.consume("single", prefetch=1) as first,
        other.consume("single", prefetch=1) as second,
    ):
        await broker.publish([to("single", "1"), to("single", "2")])
        await next_of(first)
        return await comes_nothing(second)


async def ttl(broker: KombuBroker, _: dict[str, Any]) -> bool:
    """Leave a message for longer than its queue keeps any."""
    await broker.publish([to("short")])
    await asyncio.sleep(2 * QUIET_S)
    async with broker.consume("short", prefetch=1) as deliveries:
        return await comes_nothing(deliveries)


async def unroutable(broker: KombuBroker, _: dict[str, Any]) -> bool:
    """Publish to a queue that is not there."""
    try:
        await broker.publish([to("nowhere")])
    except Unroutable:
        return True
    return False


async def unseen(broker: KombuBroker, _: dict[str, Any]) -> bool:
    """Fetch two messages and look at one."""
    await broker.publish([to("plain", "1"), to("plain", "2")])
    async with broker.consume("plain", prefetch=2) as deliveries:
        first = await next_of(deliveries)
        await first.acknowledge()
    async with broker.consume("plain", prefetch=1) as deliveries:
        return (await next_of(deliveries)).earlier_deliveries == 0


TRIALS: dict[str, Callable[[KombuBroker, dict[str, Any]], Awaitable[bool]]] = {
    "counts": counts,
    "dead-letters": dead_letters,
    "delivery-limit": delivery_limit,
    "further-keys": further_keys,
    "order": order,
    "place": place,
    "reasons": reasons,
    "redelivery": redelivery,
    "sharing": sharing,
    "single-consumer": single_consumer,
    "ttl": ttl,
    "unroutable": unroutable,
    "unseen": unseen,
}


@pytest.mark.parametrize("ability", TRIALS)
async def test_a_transport_lacks_what_it_says(given: dict[str, Any], ability: str) -> None:
    """Neither more nor less: what it is said to lack was seen to fail."""
    async with connected(given) as broker:
        assert await TRIALS[ability](broker, given) == (ability not in broker.lacks)


def test_every_word_is_tried_but_one() -> None:
    """What outlives every process is not tried with one."""
    assert set(TRIALS) == set(ABILITIES) - {"durability"}
    assert all(words <= set(ABILITIES) for words in LACKS.values())


@pytest.mark.parametrize(
    ("transport", "words"),
    [
        ("pyamqp", {"reasons", "unseen"}),
        ("AMQPS", {"reasons", "unseen"}),
        ("rediss", LACKS["redis"]),
        ("SQS", LACKS["sqs"]),
        ("sqlalchemy", LACKS["sqla"]),
        ("confluentkafka", set(ABILITIES)),
    ],
)
def test_transports_have_several_names_and_unknown_ones_nothing(transport: str, words: set[str]) -> None:
    """By whatever name kombu knows it; what nobody looked into is not promised."""
    assert lacks(transport) == words
