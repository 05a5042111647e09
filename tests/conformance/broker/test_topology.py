"""What is declared exists once, for every connection, and routes as it says."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.conformance.broker.harness import (
    PATIENCE_S,
    Place,
    comes_nothing,
    depth_becomes,
    eventually,
    next_of,
    text_of,
    texts_of,
    to,
)
from tidewheel.broker.errors import BrokerUnavailable, Unroutable
from tidewheel.broker.message import ORIGIN, REASON, Message, Publication
from tidewheel.broker.protocol import Broker
from tidewheel.broker.topology import Binding, Exchange, Queue, Topology
from tidewheel.journal.errors import InvalidRequest


@pytest.mark.parametrize(
    ("pattern", "key", "taken"),
    [
        ("default.order.RunStarted", "default.order.RunStarted", True),
        ("default.*.RunStarted", "default.order.RunStarted", True),
        ("default.*", "default.order.RunStarted", False),
        ("*.*.*", "default.order.RunStarted", True),
        ("*", "default", True),
        ("*", "", False),
        ("#", "", True),
        ("#", "a.b.c", True),
        ("default.#", "default", True),
        ("default.#", "default.a.b", True),
        ("default.#", "defaults.a", False),
        ("#.RunStarted", "a.b.RunStarted", True),
        ("#.a.#.b", "x.a.y.a.b", True),
        ("#.a.*.b", "a.a.b", True),
        ("a.#.b", "a.c", False),
        ("a+", "aa", False),
        ("a.b", "axb", False),
    ],
)
async def test_topics_match_by_words(broker: Broker, pattern: str, key: str, taken: bool) -> None:
    """``*`` is one word, ``#`` any number of words, and everything else is itself."""
    await broker.declare(
        Topology(
            exchanges=(Exchange("events", "topic"),),
            bindings=(Binding("events", "plain", pattern), Binding("events", "work.dlq", "#")),
        )
    )

    await broker.publish([to(key, exchange="events")])

    assert await broker.depth("plain") == (1 if taken else 0)
    assert await broker.depth("work.dlq") == 1


async def test_further_keys_lead_to_further_queues_each_once(broker: Broker) -> None:
    """A message goes to whatever any of its keys leads to, and nobody who gets it sees the others."""
    bindings = (Binding("events", "plain", "@a/1"), Binding("events", "work", "#"))
    await broker.declare(Topology(exchanges=(Exchange("events", "topic"),), bindings=bindings))
    message = Message(body=b"x", message_id="1", headers={"h": "1"})

    for also in (("@a/1",), ("@a/2",), ("@a/1", "@a/2")):
        await broker.publish(
            [Publication(message=message, exchange="events", routing_key="default.order.Ran", also=also)]
        )

    async with broker.consume("plain", prefetch=9) as plain, broker.consume("work", prefetch=9) as work:
        received = [await next_of(plain) for _ in range(2)]
        assert [delivery.message for delivery in received] == [message, message]
        assert await texts_of(work, 3) == ["x"] * 3
        assert await comes_nothing(plain)
        assert await comes_nothing(work)


async def test_a_message_that_only_a_further_key_leads_anywhere_is_taken(broker: Broker) -> None:
    """It is unroutable only if none of its keys leads to a queue."""
    bindings = (Binding("events", "plain", "@a/1"),)
    await broker.declare(Topology(exchanges=(Exchange("events", "topic"),), bindings=bindings))

    def keyed(also: str) -> Publication:
        message = Message(body=b"x", message_id=also)
        return Publication(message=message, exchange="events", routing_key="a.b.c", also=(also,))

    assert await broker.offer([keyed("@a/1"), keyed("@a/2")]) == [None, "unroutable"]


@pytest.mark.needs("single-consumer")
async def test_a_queue_for_one_consumer_is_taken_from_by_one_at_a_time(place: Place, broker: Broker) -> None:
    """The next one gets what is left, and what the first had not settled, once that has left."""
    await broker.declare(Topology(queues=(Queue(name="single", delivery_limit=5, single_consumer=True),)))
    other = await place.connect()

    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(broker.consume("single", prefetch=1))
        async with other.consume("single", prefetch=5) as second:
            await broker.publish([to("single", text) for text in ("1", "2", "3")])
            await (await next_of(first)).acknowledge()
            assert text_of(await next_of(first)) == "2"
            assert await comes_nothing(second)
            await stack.aclose()

            assert sorted(await texts_of(second, 2)) == ["2", "3"]


async def test_a_fanout_reaches_every_queue_once(broker: Broker) -> None:
    """Each bound queue gets one copy, whatever the key and however often it is bound."""
    bindings = (Binding("all", "plain", "a"), Binding("all", "plain", "b"), Binding("all", "work", ""))
    await broker.declare(Topology(exchanges=(Exchange("all", "fanout"),), bindings=bindings))

    await broker.publish([to("any", "x", exchange="all")])

    async with broker.consume("plain", prefetch=2) as plain, broker.consume("work", prefetch=2) as work:
        assert [await texts_of(plain, 1), await texts_of(work, 1)] == [["x"], ["x"]]
        assert await comes_nothing(plain)


async def test_a_direct_exchange_takes_the_exact_key(broker: Broker) -> None:
    """No wildcard means anything to a direct exchange."""
    bindings = (Binding("commands", "plain", "start"), Binding("commands", "work", "*"))
    await broker.declare(Topology(exchanges=(Exchange("commands", "direct"),), bindings=bindings))

    await broker.publish([to("start", exchange="commands")])

    assert [await broker.depth("plain"), await broker.depth("work")] == [1, 0]


async def test_a_copy_that_is_released_stays_in_its_queue(broker: Broker) -> None:
    """Giving back one copy of a message does not send it to the other queues again."""
    bindings = (Binding("all", "plain", ""), Binding("all", "work", ""))
    await broker.declare(Topology(exchanges=(Exchange("all", "fanout"),), bindings=bindings))
    await broker.publish([to("any", exchange="all")])

    async with broker.consume("plain", prefetch=1) as deliveries:
        await (await next_of(deliveries)).release()
        assert (await next_of(deliveries)).earlier_deliveries == 1

    await depth_becomes(broker, "plain", 1)  # what was given back may not be counted at once
    assert await broker.depth("work") == 1


async def test_what_no_queue_takes_is_said_and_the_rest_is_taken(broker: Broker) -> None:
    """One bad address in a batch costs only itself, and the error names it."""
    await broker.declare(Topology(exchanges=(Exchange("events", "topic"),)))
    batch = [
        to("plain", "1"),
        to("nowhere", "2"),
        to("x", "3", exchange="events"),
        to("y", exchange="no-exchange"),
        to("plain", "4"),
    ]

    with pytest.raises(Unroutable, match=r"'nowhere'.*") as caught:
        await broker.publish(batch)

    assert len(caught.value.addresses) == 3
    async with broker.consume("plain", prefetch=2) as deliveries:
        assert await texts_of(deliveries, 2) == ["1", "4"]


async def test_another_connection_sees_what_was_declared(broker: Broker, place: Place) -> None:
    """Who publishes need not have declared."""
    await broker.declare(
        Topology(exchanges=(Exchange("events", "topic"),), bindings=(Binding("events", "plain", "#"),))
    )

    other = await place.connect()
    await other.publish([to("a.b", exchange="events"), to("plain")])

    assert await broker.depth("plain") == 2


async def test_declaring_again_keeps_what_is_there(broker: Broker) -> None:
    """Every process declares what it uses; that must not empty a queue."""
    topology = Topology(queues=(Queue(name="q", delivery_limit=3, ttl_s=60.5, expires_s=90),))
    await broker.declare(topology)
    await broker.publish([to("q")])

    await broker.declare(topology)

    assert await broker.depth("q") == 1


@pytest.mark.parametrize(
    "other",
    [
        Queue(name="plain", delivery_limit=3),
        Queue(name="plain", dead_letter_queue="work.dlq"),
        Queue(name="plain", ttl_s=1.0),
        Queue(name="plain", expires_s=1.0),
    ],
)
async def test_a_queue_declared_otherwise_is_refused(broker: Broker, other: Queue) -> None:
    """One of the two declarers would not get what it asked for; and nothing else is changed."""
    with pytest.raises(InvalidRequest, match="'plain'"):
        await broker.declare(Topology(queues=(Queue(name="new"), other)))

    with pytest.raises(Unroutable):
        await broker.publish([to("new")])
    await broker.publish([to("plain")])
    assert await broker.depth("plain") == 1


async def test_an_exchange_declared_otherwise_is_refused(broker: Broker) -> None:
    """The type of an exchange is part of what it is."""
    await broker.declare(Topology(exchanges=(Exchange("events", "topic"),)))

    with pytest.raises(InvalidRequest, match="'events'"):
        await broker.declare(Topology(exchanges=(Exchange("events", "fanout"),)))


@pytest.mark.parametrize("binding", [Binding("nowhere", "plain"), Binding("events", "nowhere")])
async def test_a_binding_needs_both_ends(broker: Broker, binding: Binding) -> None:
    """A binding to what does not exist would silently lose messages."""
    with pytest.raises(InvalidRequest, match="'nowhere'"):
        await broker.declare(Topology(exchanges=(Exchange("events", "topic"),), bindings=(binding,)))


async def test_the_depth_counts_what_waits(broker: Broker) -> None:
    """Not what is in somebody's hands; and what is not there is empty."""
    await broker.publish([to("plain"), to("plain")])

    async with broker.consume("plain", prefetch=1) as deliveries:
        await next_of(deliveries)
        assert await broker.depth("plain") == 1
    await depth_becomes(broker, "plain", 2)
    assert await broker.depth("nowhere") == 0


async def test_a_deleted_queue_is_gone_with_its_messages(broker: Broker) -> None:
    """Deleting takes messages and bindings; declared again it is empty; deleting nothing is fine."""
    await broker.declare(
        Topology(exchanges=(Exchange("all", "fanout"),), bindings=(Binding("all", "plain"),))
    )
    await broker.publish([to("plain")])

    await broker.delete_queue("plain")
    await broker.delete_queue("plain")

    assert await broker.depth("plain") == 0
    with pytest.raises(Unroutable):
        await broker.publish([to("plain")])
    with pytest.raises(Unroutable):
        await broker.publish([to("any", exchange="all")])
    await broker.declare(Topology(queues=(Queue(name="plain", ttl_s=9.0),)))
    assert await broker.depth("plain") == 0
    with pytest.raises(Unroutable):
        await broker.publish([to("any", exchange="all")])


async def test_a_consumer_of_a_deleted_queue_is_told(broker: Broker) -> None:
    """It must not wait for ever in a queue that is not there, and settling what it had is harmless."""
    await broker.publish([to("plain")])
    async with broker.consume("plain", prefetch=2) as deliveries:
        held = await next_of(deliveries)
        waiting = asyncio.ensure_future(anext(deliveries))
        await asyncio.sleep(0)

        await broker.delete_queue("plain")

        with pytest.raises(BrokerUnavailable, match="'plain'"):
            await asyncio.wait_for(waiting, PATIENCE_S)
        await held.release()
        assert await broker.depth("plain") == 0


async def test_consuming_what_is_not_there_is_an_error(broker: Broker) -> None:
    """A consumer is not silently deaf."""
    with pytest.raises(BrokerUnavailable, match="'nowhere'"):
        async with broker.consume("nowhere", prefetch=1):
            pass


async def test_a_message_too_old_for_its_queue_becomes_a_dead_letter(broker: Broker) -> None:
    """It moves while nobody consumes the queue, says so, and does not expire again."""
    short = Queue(name="short", ttl_s=0.05, dead_letter_queue="plain")
    await broker.declare(Topology(queues=(short,)))

    await broker.publish([to("short", "1"), to("short", "2", expires_s=30.0)])

    async with broker.consume("plain", prefetch=2) as deliveries:
        first, second = await next_of(deliveries), await next_of(deliveries)
    assert [text_of(first), text_of(second)] == ["1", "2"]
    assert second.message.headers == {REASON: "expired", ORIGIN: "short"}
    assert second.message.expires_s is None
    assert await broker.depth("short") == 0


async def test_looking_at_the_dead_letters_is_enough_to_find_an_expired_message(broker: Broker) -> None:
    """Without any consumer the message has moved when somebody asks."""
    await broker.publish([to("work", expires_s=0.03)])

    await depth_becomes(broker, "work.dlq", 1)

    assert await broker.depth("work") == 0


async def test_a_message_with_its_own_expiry_is_dropped_without_dead_letters(broker: Broker) -> None:
    """It is not delivered late, and what stands behind it is."""
    await broker.publish([to("plain", "stale", expires_s=0.03), to("plain", "fresh")])

    await depth_becomes(broker, "plain", 1)

    async with broker.consume("plain", prefetch=2) as deliveries:
        assert await texts_of(deliveries, 1) == ["fresh"]
        assert await comes_nothing(deliveries)


async def test_a_message_in_hands_expires_when_it_comes_back(broker: Broker) -> None:
    """Being delivered stops nobody's clock: a hint given back too late is not delivered again."""
    async with broker.consume("work", prefetch=1) as deliveries:
        await broker.publish([to("work", expires_s=0.4)])
        held = await next_of(deliveries)
        for _ in range(3):
            assert await comes_nothing(deliveries)
        assert await broker.depth("work.dlq") == 0

        await held.release()

        assert await comes_nothing(deliveries)
    async with broker.consume("work.dlq", prefetch=1) as dead_letters:
        assert (await next_of(dead_letters)).message.headers[REASON] == "expired"


async def test_a_queue_that_nobody_uses_is_deleted(broker: Broker) -> None:
    """After its time the queue is gone with what is in it."""
    await broker.declare(Topology(queues=(Queue(name="mine", kind="classic", expires_s=0.4),)))
    await broker.publish([to("mine")])

    async def gone() -> bool:
        try:
            await broker.publish([to("mine")])
        except Unroutable:
            return True
        return False

    await eventually(gone)

    assert await broker.depth("mine") == 0


async def test_a_queue_with_a_consumer_does_not_expire(broker: Broker) -> None:
    """The time counts from when the last consumer left."""
    await broker.declare(Topology(queues=(Queue(name="mine", kind="classic", expires_s=0.4),)))

    async with broker.consume("mine", prefetch=1) as deliveries:
        for _ in range(3):
            assert await comes_nothing(deliveries)
        await broker.publish([to("mine", "still here")])
        assert await texts_of(deliveries, 1) == ["still here"]


async def test_of_each_publication_it_is_said_whether_it_was_taken(broker: Broker) -> None:
    """Whoever offers several learns which of them no queue takes; the others are there, in their order."""
    await broker.declare(Topology(exchanges=(Exchange("offered", "topic"),)))
    offered = [to("plain", "a"), to("nowhere", "b"), to("x.y", "c", exchange="offered"), to("plain", "d")]

    answers = await broker.offer(offered)

    if "unroutable" in broker.lacks:
        assert answers[0] is answers[3] is None
    else:
        assert answers == [None, "unroutable", "unroutable", None]
    assert await broker.offer([]) == []
    async with broker.consume("plain", prefetch=2) as deliveries:
        assert [text_of(await next_of(deliveries)) for _ in range(2)] == ["a", "d"]


async def test_the_content_type_travels_along(broker: Broker) -> None:
    """Whoever reads a message is told what its body is."""
    message = Message(body=b"{}", message_id="m", content_type="application/json")
    await broker.publish([Publication(message=message, routing_key="plain")])

    async with broker.consume("plain", prefetch=1) as deliveries:
        assert (await next_of(deliveries)).message.content_type == "application/json"
