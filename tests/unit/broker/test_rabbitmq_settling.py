"""Few frames settle many deliveries, and never one that nobody settled."""

from __future__ import annotations

import random

import pytest
from pamqp import commands, frame

from tidewheel.broker.rabbitmq.settling import Unsettled


class Server:
    """What RabbitMQ makes of the frames it gets for a channel."""

    def __init__(self) -> None:
        self.unsettled: list[int] = []
        self.acknowledged: list[int] = []
        self.requeued: list[int] = []
        self.frames = 0

    def read(self, data: bytes) -> None:
        """Do what the frames say; a tag that is not unsettled would close the channel."""
        while data:
            size, _, method = frame.unmarshal(data)
            data = data[size:]
            self.frames += 1
            match method:
                case commands.Basic.Ack():
                    tags = [
                        tag
                        for tag in self.unsettled
                        if tag == method.delivery_tag or (method.multiple and tag < method.delivery_tag)
                    ]
                    assert method.delivery_tag in tags
                    self.acknowledged += tags
                case commands.Basic.Reject():
                    tags = [tag for tag in self.unsettled if tag == method.delivery_tag]
                    assert tags
                    self.requeued += tags
                case _:
                    pytest.fail(f"{method} settles nothing")
            self.unsettled = [tag for tag in self.unsettled if tag not in tags]


def test_what_is_settled_in_turn_takes_one_frame() -> None:
    """A batch that commits together is acknowledged together."""
    server, unsettled = Server(), Unsettled(1)
    server.unsettled = list(range(1, 65))
    for tag in server.unsettled:
        unsettled.deliver(tag)
    firsts = [unsettled.acknowledge(tag) for tag in random.Random(1).sample(range(1, 65), 64)]

    server.read(unsettled.take_frames())

    assert firsts == [True] + 63 * [False]
    assert (server.frames, sorted(server.acknowledged)) == (1, list(range(1, 65)))
    assert unsettled.take_frames() == b""


@pytest.mark.parametrize("seed", range(50))
def test_whatever_the_order_nothing_else_is_settled(seed: int) -> None:
    """Deliveries, acknowledgements, releases and flushes in any order: the broker ends where we are."""
    chance, server, unsettled = random.Random(seed), Server(), Unsettled(1)
    in_hand: list[int] = []
    acknowledged: set[int] = set()
    requeued: set[int] = set()
    tag = 0

    for _ in range(300):
        match chance.choices(["deliver", "acknowledge", "reject", "flush"], weights=[4, 3, 1, 2])[0]:
            case "deliver":
                tag += 1
                server.unsettled.append(tag)
                unsettled.deliver(tag)
                in_hand.append(tag)
            case "acknowledge" if in_hand:
                acknowledged.add(one := in_hand.pop(chance.randrange(len(in_hand))))
                unsettled.acknowledge(one)
            case "reject" if in_hand:
                requeued.add(one := in_hand.pop(chance.randrange(len(in_hand))))
                server.read(unsettled.reject(one, requeue=True))
            case "flush":
                server.read(unsettled.take_frames())
                assert set(server.acknowledged) == acknowledged
        assert unsettled.outstanding == len(server.unsettled)

    server.read(unsettled.take_frames() + unsettled.give_back())
    assert server.unsettled == []
    assert set(server.acknowledged) == acknowledged
    assert set(server.requeued) == requeued | set(in_hand)
    assert server.requeued[-len(in_hand) :] == sorted(in_hand) or not in_hand
