"""RabbitMQ as a deployment sets it up: a private node with our configuration and our definitions.

What each user may do is asked of the node itself. It is of the version that this host has (3.10 on Debian
12); ``tests/unit/deploy/test_permissions.py`` keeps the definitions to what later versions read as well.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel
from aiormq.exceptions import ChannelAccessRefused, ProbableAuthenticationError

from tests.scenario.deployed import DeployedRabbit, Secrets
from tests.servers.rabbitmq import PrivateRabbit
from tests.unit.deploy.reading import IS_CHECKOUT
from tidewheel.broker.topology import (
    Queue,
    dead_letter_queue,
    poison_queue,
    reply_queue,
    reply_topology,
    sticky_queue,
    sticky_topology,
    work_queue,
    work_topology,
)

pytestmark = pytest.mark.skipif(not IS_CHECKOUT, reason="an unpacked sdist has no folders at the root")

Act = Callable[[AbstractChannel, str], Awaitable[None]]

WORK = work_queue("default", "default")
DEAD = dead_letter_queue(WORK)
POISON = poison_queue("default")
STICKY = sticky_queue("host.example.net-7-0a1b2c3d")
REPLY = reply_queue("0123456789abcdef")
FOREIGN = "orders.incoming"


class Deployed:
    """A node with our definitions, and the secrets of those who connect to it."""

    def __init__(self, node: PrivateRabbit, secrets: Secrets) -> None:
        self.node = node
        self.secrets = secrets

    @asynccontextmanager
    async def channel(self, role: str) -> AsyncIterator[AbstractChannel]:
        """A channel of the user of *role*, with confirms."""
        async with await aio_pika.connect(self.secrets[f"broker_{role}"]) as connection:
            yield await connection.channel(publisher_confirms=True)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """A node that was started with our files."""
    secrets = Secrets(tmp_path_factory.mktemp("deployed") / "secrets")
    with DeployedRabbit(secrets) as node:
        secrets.make(rabbitmq=node.port)
        yield Deployed(node, secrets)


async def declare(channel: AbstractChannel, *queues: Queue) -> None:
    """Declare *queues* with what makes RabbitMQ ask for permission: their names and their dead letters."""
    for queue in queues:
        arguments = {"x-queue-type": "quorum"}
        if queue.dead_letter_queue is not None:
            arguments["x-dead-letter-exchange"] = ""
            arguments["x-dead-letter-routing-key"] = queue.dead_letter_queue
        await channel.declare_queue(queue.name, durable=True, arguments={**arguments})


async def publish(channel: AbstractChannel, queue: str, body: bytes) -> None:
    """Publish straight to *queue*, confirmed."""
    await channel.default_exchange.publish(aio_pika.Message(body), routing_key=queue, mandatory=True)


async def declaring(channel: AbstractChannel, name: str) -> None:
    """Declare a queue of this name."""
    await channel.declare_queue(name, durable=True, arguments={"x-queue-type": "quorum"})


async def deleting(channel: AbstractChannel, name: str) -> None:
    """Delete the queue of this name."""
    await channel.queue_delete(name)


async def reading(channel: AbstractChannel, name: str) -> None:
    """Take a message from the queue of this name."""
    queue = await channel.get_queue(name, ensure=False)
    await queue.get(fail=False, timeout=10)


async def publishing(channel: AbstractChannel, name: str) -> None:
    """Publish to the exchange of this name."""
    found = await channel.get_exchange(name, ensure=False)
    await found.publish(aio_pika.Message(b"forged"), routing_key="any", mandatory=False)


async def test_our_configuration_is_in_force(deployed: Deployed) -> None:
    """The node knows each key, and took its value."""
    found = deployed.node.evaluate(
        "[element(2, application:get_env(rabbit, Key))"
        " || Key <- [heartbeat, consumer_timeout, vm_memory_high_watermark]]."
    )

    assert found == [30, 1_800_000, 0.6]


async def test_only_our_users_exist(deployed: Deployed) -> None:
    """There is no guest, and nobody administers anything over the network."""
    users = json.loads(deployed.node.ctl("list_users", "--formatter", "json"))
    vhosts = json.loads(deployed.node.ctl("list_vhosts", "--formatter", "json"))

    named = {user["user"]: user["tags"] for user in users}
    assert named == {f"tidewheel-{role}": [] for role in ("worker", "keeper", "relay", "projector", "client")}
    assert [vhost["name"] for vhost in vhosts] == ["tidewheel"]


async def test_another_password_does_not_fit(deployed: Deployed) -> None:
    """The hashes are of the passwords that were made; nothing else opens."""
    url, right = deployed.secrets["broker_worker"], deployed.secrets["rabbitmq_worker"]

    for wrong in (deployed.secrets["rabbitmq_keeper"], right[:-1], "guest"):
        with pytest.raises(ProbableAuthenticationError):
            await aio_pika.connect(url.replace(right, wrong))


async def test_a_worker_declares_and_uses_its_queues(deployed: Deployed) -> None:
    """Work comes in, dead letters go out, and its own queue goes with it."""
    own = STICKY.removeprefix(sticky_queue(""))

    async with deployed.channel("worker") as channel:
        await declare(channel, *work_topology("default", ["default", "gpu"]).queues)
        await declare(channel, *work_topology("blue", ["default"]).queues)
        await declare(channel, *sticky_topology("default", own, "default").queues)
        await publish(channel, WORK, b"hint")
        await publish(channel, STICKY, b"own")
        work = await channel.get_queue(WORK, ensure=False)
        sticky = await channel.get_queue(STICKY, ensure=False)
        hint, own_hint = await work.get(timeout=10), await sticky.get(timeout=10)
        assert hint is not None
        assert own_hint is not None
        await own_hint.ack()
        await hint.reject(requeue=False)
        await channel.queue_delete(STICKY)

    assert (hint.body, own_hint.body) == (b"hint", b"own")


async def test_a_keeper_takes_dead_letters_and_gives_hints_again(deployed: Deployed) -> None:
    """It declares the same queues, reads what nobody could do, and keeps what nobody can read."""
    work = work_queue("kept", "default")

    async with deployed.channel("keeper") as channel:
        await declare(channel, *work_topology("kept", ["default"]).queues)
        await publish(channel, dead_letter_queue(work), b"dead")
        letters = await channel.get_queue(dead_letter_queue(work), ensure=False)
        letter = await letters.get(timeout=10)
        assert letter is not None
        await letter.ack()
        await publish(channel, work, b"again")
        await publish(channel, poison_queue("kept"), b"unreadable")

    assert letter.body == b"dead"


async def test_a_client_gives_hints_and_hears_replies(deployed: Deployed) -> None:
    """It has a queue of its own and needs no other."""
    async with deployed.channel("keeper") as channel:
        await declare(channel, *work_topology("default", ["default"]).queues)

    async with deployed.channel("client") as channel, deployed.channel("worker") as worker:
        await declare(channel, *reply_topology(REPLY.removeprefix(reply_queue(""))).queues)
        await publish(channel, WORK, b"start")
        await publish(worker, REPLY, b"ended")
        replies = await channel.get_queue(REPLY, ensure=False)
        reply = await replies.get(timeout=10)
        assert reply is not None
        await reply.ack()

    assert reply.body == b"ended"


@pytest.mark.parametrize(
    ("role", "act", "name"),
    [
        ("worker", reading, DEAD),
        ("worker", reading, POISON),
        ("worker", reading, REPLY),
        ("worker", deleting, REPLY),
        ("worker", declaring, FOREIGN),
        ("worker", reading, FOREIGN),
        ("worker", deleting, FOREIGN),
        ("worker", publishing, "amq.topic"),
        ("keeper", reading, POISON),
        ("keeper", reading, STICKY),
        ("keeper", deleting, STICKY),
        ("keeper", reading, REPLY),
        ("keeper", declaring, FOREIGN),
        ("keeper", reading, FOREIGN),
        ("keeper", publishing, "amq.fanout"),
        ("client", declaring, WORK),
        ("client", reading, WORK),
        ("client", deleting, WORK),
        ("client", reading, DEAD),
        ("client", reading, STICKY),
        ("client", declaring, FOREIGN),
        ("client", reading, FOREIGN),
        ("client", publishing, "amq.direct"),
    ],
)
async def test_nobody_touches_what_is_not_theirs(deployed: Deployed, role: str, act: Act, name: str) -> None:
    """The node itself refuses it, whether the queue is there or not."""
    async with deployed.channel(role) as channel:
        with pytest.raises(ChannelAccessRefused):
            await act(channel, name)
