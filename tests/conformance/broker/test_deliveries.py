"""Every message is delivered until it is settled, in order, and to one consumer at a time."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.conformance.broker.harness import (
    PATIENCE_S,
    Place,
    comes_nothing,
    depth_becomes,
    next_of,
    text_of,
    texts_of,
    to,
)
from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.message import KEY, ORIGIN, REASON, Message, Publication
from tidewheel.broker.protocol import Broker, Delivery
from tidewheel.broker.topology import Binding, Exchange, Queue, Topology


async def test_a_message_arrives_as_it_was_published(broker: Broker) -> None:
    """Body, id and headers come through, for any bytes."""
    sent = Message(body=bytes(range(256)), message_id="one", headers={"ce-type": "Ä"}, expires_s=60.0)

    await broker.publish([Publication(message=sent, routing_key="plain")])

    async with broker.consume("plain", prefetch=1) as deliveries:
        delivery = await next_of(deliveries)
        assert (delivery.message, delivery.queue, delivery.earlier_deliveries) == (sent, "plain", 0)


async def test_an_empty_body_is_a_message_too(broker: Broker) -> None:
    """No bytes are bytes."""
    await broker.publish([to("plain", "")])

    async with broker.consume("plain", prefetch=1) as deliveries:
        assert (await next_of(deliveries)).message.body == b""


async def test_messages_come_in_the_order_they_were_published(broker: Broker) -> None:
    """A queue is first in, first out, within a call and over calls."""
    await broker.publish([to("plain", "1"), to("plain", "2")])
    await broker.publish([to("plain", "3")])

    async with broker.consume("plain", prefetch=3) as deliveries:
        assert await texts_of(deliveries, 3) == ["1", "2", "3"]


async def test_publishing_wakes_a_consumer_that_waits(broker: Broker) -> None:
    """A consumer that found nothing hears of the next message."""
    async with broker.consume("plain", prefetch=1) as deliveries:
        assert await comes_nothing(deliveries)
        waiting = asyncio.ensure_future(next_of(deliveries))

        await broker.publish([to("plain", "late")])

        assert text_of(await waiting) == "late"


async def test_an_acknowledged_message_is_gone(broker: Broker, place: Place) -> None:
    """Nobody gets it again, whoever leaves or comes."""
    await broker.publish([to("plain")])
    async with broker.consume("plain", prefetch=1) as deliveries:
        await (await next_of(deliveries)).acknowledge()
    await broker.close()

    other = await place.connect()
    async with other.consume("plain", prefetch=1) as deliveries:
        assert await comes_nothing(deliveries)
        assert await other.depth("plain") == 0


@pytest.mark.needs("unseen")
async def test_a_consumer_that_leaves_gives_back_what_is_unsettled(broker: Broker) -> None:
    """What was delivered and not settled is delivered again, to its place, and says so."""
    await broker.publish([to("plain", "1"), to("plain", "2"), to("plain", "3")])

    async with broker.consume("plain", prefetch=2) as deliveries:
        first, second = await next_of(deliveries), await next_of(deliveries)
        await second.acknowledge()

    async with broker.consume("plain", prefetch=2) as deliveries:
        again, third = await next_of(deliveries), await next_of(deliveries)
        assert [text_of(first), text_of(again), text_of(third)] == ["1", "1", "3"]
        assert [again.earlier_deliveries, third.earlier_deliveries] == [1, 0]


@pytest.mark.needs("unseen")
async def test_what_a_consumer_never_looked_at_was_not_delivered(broker: Broker) -> None:
    """Fetching ahead does not count: a restart must not bring messages nearer to their limit."""
    await broker.publish([to("work", "1"), to("work", "2"), to("work", "3")])

    for text in ("1", "2", "3"):
        async with broker.consume("work", prefetch=3) as deliveries:
            delivery = await next_of(deliveries)
            await delivery.acknowledge()
        assert (text_of(delivery), delivery.earlier_deliveries) == (text, 0)


@pytest.mark.needs("unseen")
async def test_a_consumer_that_stops_lets_others_have_what_it_fetched(broker: Broker, place: Place) -> None:
    """It ends at once, what is in its hands it can still settle, and the rest was not delivered."""
    await broker.publish([to("work", "1"), to("work", "2"), to("work", "3")])
    other = await place.connect()
    async with broker.consume("work", prefetch=3) as deliveries:
        first = await next_of(deliveries)

        await deliveries.stop()
        await deliveries.stop()

        with pytest.raises(StopAsyncIteration):
            await anext(deliveries)
        async with other.consume("work", prefetch=3) as others:
            taken = [await next_of(others), await next_of(others)]
            assert await comes_nothing(others)
            await first.acknowledge()
            for delivery in taken:
                await delivery.acknowledge()
        await broker.publish([to("work", "4")])
        assert await broker.depth("work") == 1
    assert [(text_of(delivery), delivery.earlier_deliveries) for delivery in taken] == [("2", 0), ("3", 0)]
    assert await broker.depth("work") == 1


async def test_stopping_ends_a_wait(broker: Broker) -> None:
    """Whoever waits for the next message hears that there is none."""
    async with broker.consume("plain", prefetch=1) as deliveries:
        waiting = asyncio.ensure_future(anext(deliveries, None))
        await asyncio.sleep(0)

        await deliveries.stop()

        assert await asyncio.wait_for(waiting, PATIENCE_S) is None


async def test_a_released_message_keeps_its_place(broker: Broker) -> None:
    """Giving a message back puts it before what was published after it."""
    await broker.publish([to("plain", "1"), to("plain", "2"), to("plain", "3")])

    async with broker.consume("plain", prefetch=1) as deliveries:
        first = await next_of(deliveries)
        await first.release()
        again = await next_of(deliveries)

        assert (text_of(again), again.earlier_deliveries) == ("1", 1)
        await again.acknowledge()
        assert await texts_of(deliveries, 2) == ["2", "3"]


async def test_a_message_delivered_too_often_becomes_a_dead_letter(broker: Broker) -> None:
    """With a limit of two, the second return is the last; the dead letter says why and whence."""
    await broker.publish([to("work", "poison")])

    async with broker.consume("work", prefetch=1) as deliveries:
        await (await next_of(deliveries)).release()
        last = await next_of(deliveries)
        await last.release()

        async with broker.consume("work.dlq", prefetch=1) as dead_letters:
            dead = await next_of(dead_letters)
        assert last.earlier_deliveries == 1
        assert text_of(dead) == "poison"
        assert dead.message.headers == {REASON: "delivery-limit", ORIGIN: "work"}
        assert dead.message.message_id == last.message.message_id
        assert dead.earlier_deliveries == 0
        assert await comes_nothing(deliveries)


async def test_leaving_counts_toward_the_delivery_limit(broker: Broker) -> None:
    """A message whose consumers keep dying is poison too."""
    await broker.publish([to("work", "killer"), to("work", "next")])

    for _ in range(2):
        async with broker.consume("work", prefetch=1) as deliveries:
            assert text_of(await next_of(deliveries)) == "killer"

    async with broker.consume("work", prefetch=1) as deliveries:
        assert text_of(await next_of(deliveries)) == "next"
    await depth_becomes(broker, "work.dlq", 1)


@pytest.mark.needs("reasons")
async def test_a_buried_message_is_a_dead_letter_with_its_reason(broker: Broker) -> None:
    """Burying does not wait for the limit."""
    await broker.publish([to("work", "bad")])

    async with broker.consume("work", prefetch=1) as deliveries:
        await (await next_of(deliveries)).bury("not a 'work item'")

    async with broker.consume("work.dlq", prefetch=1) as dead_letters:
        dead = await next_of(dead_letters)
        assert dead.message.headers == {REASON: "not a 'work item'", ORIGIN: "work"}
        assert (text_of(dead), dead.queue) == ("bad", "work.dlq")


async def test_a_buried_message_is_dropped_where_there_are_no_dead_letters(broker: Broker) -> None:
    """A queue without dead letters forgets what is buried."""
    await broker.publish([to("plain", "bad")])

    async with broker.consume("plain", prefetch=1) as deliveries:
        await (await next_of(deliveries)).bury("bad")
        assert await comes_nothing(deliveries)

    assert await broker.depth("plain") == 0


async def test_no_more_than_the_prefetch_is_unsettled(broker: Broker) -> None:
    """A consumer gets the next message only when it settled one; then it goes on."""
    await broker.publish([to("plain", str(n)) for n in range(4)])

    async with broker.consume("plain", prefetch=2) as deliveries:
        first, _second = await next_of(deliveries), await next_of(deliveries)
        assert await comes_nothing(deliveries)
        assert await broker.depth("plain") == 2

        await first.acknowledge()

        assert text_of(await next_of(deliveries)) == "2"
        assert await comes_nothing(deliveries)


@pytest.mark.parametrize("settle", ["acknowledge", "release", "bury"])
async def test_settling_twice_changes_nothing(broker: Broker, settle: str) -> None:
    """The first word counts: neither a second one nor a different one does anything."""
    await broker.publish([to("work", "1"), to("work", "2")])

    async with broker.consume("work", prefetch=1) as deliveries:
        first = await next_of(deliveries)
        await _settle(first, settle)
        for again in ("acknowledge", "release", "bury"):
            await _settle(first, again)

        for text in ["1", "2"] if settle == "release" else ["2"]:
            following = await next_of(deliveries)
            assert text_of(following) == text
            await following.acknowledge()
        assert await comes_nothing(deliveries)
    await depth_becomes(broker, "work.dlq", 1 if settle == "bury" else 0)


@pytest.mark.parametrize("settle", ["acknowledge", "release", "bury"])
async def test_settling_after_the_consumer_closed_changes_nothing(broker: Broker, settle: str) -> None:
    """The message went back when the block was left; it belongs to whoever gets it next."""
    await broker.publish([to("work")])
    async with broker.consume("work", prefetch=1) as deliveries:
        late = await next_of(deliveries)

    async with broker.consume("work", prefetch=1) as deliveries:
        current = await next_of(deliveries)
        await _settle(late, settle)
        assert await broker.depth("work.dlq") == 0
        await current.acknowledge()

    await broker.close()
    await _settle(late, settle)


async def test_two_consumers_share_a_queue(broker: Broker, place: Place) -> None:
    """Each message is in the hands of one of them."""
    other = await place.connect()
    await broker.publish([to("plain", "1"), to("plain", "2")])

    async with broker.consume("plain", prefetch=1) as here, other.consume("plain", prefetch=1) as there:
        texts = {text_of(await next_of(here)), text_of(await next_of(there))}

        assert texts == {"1", "2"}
        assert await comes_nothing(here)
        assert await comes_nothing(there)


async def test_nothing_is_lost_or_doubled_among_several_consumers(place: Place, broker: Broker) -> None:
    """Two hundred messages, four consumers on connections of their own: each message once."""
    seen: Counter[str] = Counter()
    everything = asyncio.Event()

    async def consume(own: Broker) -> None:
        async with own.consume("plain", prefetch=8) as deliveries:
            async for delivery in deliveries:
                seen[text_of(delivery)] += 1
                await delivery.acknowledge()
                if seen.total() >= 200:
                    everything.set()

    async with asyncio.timeout(30):
        consumers = [asyncio.ensure_future(consume(await place.connect())) for _ in range(4)]
        for start in range(0, 200, 10):
            await broker.publish([to("plain", str(n)) for n in range(start, start + 10)])
        await everything.wait()
    for consumer in consumers:
        consumer.cancel()
    await asyncio.wait(consumers)

    assert seen == Counter(str(n) for n in range(200))
    assert await broker.depth("plain") == 0


async def test_a_cancelled_wait_loses_no_message(broker: Broker) -> None:
    """Whoever stops waiting for a message leaves it for the next call."""
    async with broker.consume("plain", prefetch=1) as deliveries:
        for n in range(20):
            waiting = asyncio.ensure_future(anext(deliveries))
            await asyncio.sleep(0)
            publishing = asyncio.ensure_future(broker.publish([to("plain", str(n))]))
            for _ in range(n % 4):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            await publishing

            delivery = waiting.result() if not waiting.cancelled() else await next_of(deliveries)
            assert text_of(delivery) == str(n)
            await delivery.acknowledge()


async def test_a_closed_broker_gives_back_and_refuses(broker: Broker, place: Place) -> None:
    """Closing ends its consumers with an error, not with silence; closing again is fine."""
    await broker.publish([to("plain", "1")])
    async with broker.consume("plain", prefetch=2) as deliveries:
        await next_of(deliveries)
        waiting = asyncio.ensure_future(anext(deliveries))
        await asyncio.sleep(0)

        await broker.close()
        await broker.close()

        with pytest.raises(BrokerUnavailable, match="closed"):
            await asyncio.wait_for(waiting, PATIENCE_S)
    with pytest.raises(BrokerUnavailable, match="closed"):
        await broker.publish([to("plain")])
    other = await place.connect()
    await depth_becomes(other, "plain", 1)


async def _settle(delivery: Delivery, how: str) -> None:
    match how:
        case "acknowledge":
            await delivery.acknowledge()
        case "release":
            await delivery.release()
        case _:
            await delivery.bury("no good")


KEYED = Topology(
    exchanges=(Exchange("orders", "topic"),),
    queues=(
        Queue(name="keyed", delivery_limit=4, dead_letter_queue="keyed.dlq"),
        Queue(name="keyed.dlq", dead_letter_queue="keyed"),
    ),
    bindings=(Binding("orders", "keyed", "#"),),
)


async def test_a_message_says_under_which_key_it_was_published(broker: Broker) -> None:
    """Of one that was sent to the queue itself that is the queue's name."""
    await broker.declare(KEYED)

    await broker.publish([to("eu.Ä", exchange="orders"), to("keyed"), to("", exchange="orders")])

    async with broker.consume("keyed", prefetch=3) as deliveries:
        assert [(await next_of(deliveries)).routing_key for _ in range(3)] == ["eu.Ä", "keyed", ""]


async def test_the_key_stays_with_a_message_that_comes_again(broker: Broker) -> None:
    """It was given back, or its consumer left with it."""
    await broker.declare(KEYED)
    await broker.publish([to("one", exchange="orders"), to("two", exchange="orders")])

    async with broker.consume("keyed", prefetch=2) as deliveries:
        first, _ = await next_of(deliveries), await next_of(deliveries)
        await first.release()
    async with broker.consume("keyed", prefetch=2) as deliveries:
        again = {(await next_of(deliveries)).routing_key for _ in range(2)}

    assert again == {"one", "two"}


@pytest.mark.needs("unseen")
async def test_the_key_stays_with_a_message_that_nobody_looked_at(broker: Broker) -> None:
    """Fetching it ahead and giving it back is no new publication."""
    await broker.declare(KEYED)
    await broker.publish([to("one", exchange="orders"), to("two", exchange="orders")])

    async with broker.consume("keyed", prefetch=2) as deliveries:
        await (await next_of(deliveries)).acknowledge()
    async with broker.consume("keyed", prefetch=2) as deliveries:
        second = await next_of(deliveries)

    assert (second.routing_key, second.earlier_deliveries) == ("two", 0)


async def test_a_dead_letter_keeps_its_key_and_takes_it_back_to_its_queue(broker: Broker) -> None:
    """Whether it was buried or came back too often; whoever sends it again need not know its exchange."""
    await broker.declare(KEYED)
    await broker.publish([to("buried", exchange="orders"), to("tired", exchange="orders"), to("keyed")])
    async with broker.consume("keyed", prefetch=3) as deliveries:
        for _ in range(2 + 4):
            delivery = await next_of(deliveries)
            if delivery.routing_key == "tired":
                await delivery.release()
            else:
                await delivery.bury("because")
        await depth_becomes(broker, "keyed.dlq", 3)

    async with broker.consume("keyed.dlq", prefetch=3) as deliveries:
        dead = [await next_of(deliveries) for _ in range(3)]
        named = {one.routing_key: one.message.headers.get(KEY) for one in dead}
        await broker.publish([Publication(message=one.message, routing_key="keyed") for one in dead])
    async with broker.consume("keyed", prefetch=3) as deliveries:
        redriven = {(await next_of(deliveries)).routing_key for _ in range(3)}

    assert {key: named[key] for key in ("buried", "tired")} == {"buried": "buried", "tired": "tired"}
    assert None in named.values()
    assert redriven == {"buried", "tired", "keyed"}
