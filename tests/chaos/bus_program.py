"""The processes of the event pipeline, as pods run them: worker, relay, projector; and somebody who hears.

Each may be told to be a mutant, and to die right before it does something for the n-th time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from tests.chaos import bus_mutants, letters
from tidewheel.broker.bus import read_event
from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.opening import open_broker
from tidewheel.broker.protocol import Broker, Delivery
from tidewheel.broker.topology import ALERTS, EVENTS, Binding, Queue, Topology, bus_topology
from tidewheel.outbox.config import RelayConfig
from tidewheel.outbox.relay import Relay
from tidewheel.projector.config import ProjectorConfig
from tidewheel.projector.projector import Projector
from tidewheel.store.opening import open_store
from tidewheel.store.protocol import Store
from tidewheel.workers.config import EventLoopConfig, KeeperConfig, WorkerConfig
from tidewheel.workers.event_loop import run
from tidewheel.workers.keeper import Keeper
from tidewheel.workers.process import Role, running, until_told_to_stop
from tidewheel.workers.watchdog import Watchdog
from tidewheel.workers.worker import Worker

logger = logging.getLogger("tests.chaos")

#: What the children of a pipeline need.
PRELOADED = (
    "tests.chaos.bus_program",
    "tidewheel.broker.rabbitmq.broker",
    "tidewheel.store.postgres.store",
    "uvloop",
)
#: What a process says when it works.
READY = "tests.chaos ready"
#: The queues of whoever hears: a durable one for every event, and one for alerts.
EVENTS_HEARD, ALERTS_HEARD = "audit", "audit.alerts"
_PREFETCH = 500
#: How long somebody who hears waits before it tries a broker again that is away.
_PAUSE_S = 0.2

#: What makes the roles of a process.
Made = Callable[[Store, Broker], Sequence[Role]]


def work(urls: list[str], *, mutant: str | None, dies: dict[str, int], config: dict[str, Any]) -> None:
    """Be a worker and a keeper until SIGTERM."""

    def roles(store: Store, broker: Broker) -> Sequence[Role]:
        worker = Worker(letters.app, store, broker, config=WorkerConfig(**config))
        return [Watchdog(), Keeper(store, broker, config=KeeperConfig()), worker]

    _serve(urls, roles, mutant, dies)


def relay(urls: list[str], *, mutant: str | None, dies: dict[str, int], config: dict[str, Any]) -> None:
    """Be a relay until SIGTERM; it may die before it makes an ``offer`` to the bus."""
    _serve(urls, lambda store, broker: [Relay(store, broker, config=RelayConfig(**config))], mutant, dies)


def project(urls: list[str], *, mutant: str | None, dies: dict[str, int], config: dict[str, Any]) -> None:
    """Be a projector until SIGTERM; it may die before it does ``save`` snapshots."""
    _serve(
        urls, lambda store, broker: [Projector(store, broker, config=ProjectorConfig(**config))], mutant, dies
    )


def _serve(urls: list[str], roles: Made, mutant: str | None, dies: Mapping[str, int]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    if mutant is not None:
        bus_mutants.APPLIED[mutant]()
    run(_until_told(urls, roles, dies), EventLoopConfig())


async def _until_told(urls: list[str], roles: Made, dies: Mapping[str, int]) -> None:
    store, broker = await open_store(urls[0]), open_broker(urls[1], store_url=urls[0])
    try:
        places: dict[str, Any] = {"offer": broker, "save": store.snapshots}
        for call, number in dies.items():
            setattr(places[call], call, _deadly(getattr(places[call], call), number))
        async with running(roles(store, broker)):
            logger.info("ready")
            await until_told_to_stop()
    finally:
        await broker.close()
        await store.close()


def _deadly(call: Callable[..., Any], number: int) -> Callable[..., Any]:
    """Return *call*, which kills this process right before it is made for the *number*-th time."""
    left = number

    async def called(*given: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)  # noqa: ASYNC251 - nothing may come after
        return await call(*given)

    return called


def hear(url: str, path: str) -> None:
    """Be a consumer of the bus as users have one; each message is a line in *path* before it is acknowledged.

    It bears a broker that goes away and comes back, and is never killed: what it did not get never came.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    with Path(path).open("a", encoding="utf-8", buffering=1) as file:
        asyncio.run(_hear(url, file))


async def _hear(url: str, file: TextIO) -> None:
    broker = open_broker(url, store_url="")
    queues = {EVENTS_HEARD: (EVENTS, _event_line), ALERTS_HEARD: (ALERTS, _alert_line)}
    topology = Topology(
        queues=tuple(Queue(name=name) for name in queues),
        bindings=tuple(Binding(exchange, name, "#") for name, (exchange, _) in queues.items()),
    )

    async def declare() -> None:
        await broker.declare(bus_topology())
        await broker.declare(topology)

    async def listen(queue: str, line: Callable[[Delivery], list[Any]]) -> None:
        while True:
            try:
                await declare()
                async with broker.consume(queue, prefetch=_PREFETCH) as deliveries:
                    async for delivery in deliveries:
                        file.write(json.dumps(line(delivery)) + "\n")
                        await delivery.acknowledge()
            except BrokerUnavailable as problem:
                logger.info("%s is heard again soon: %s", queue, problem)
                await asyncio.sleep(_PAUSE_S)

    await declare()
    logger.info("ready")
    await asyncio.gather(*(listen(queue, line) for queue, (_, line) in queues.items()))


def _event_line(delivery: Delivery) -> list[Any]:
    """Return what there is to know of an event: ``arrivals.Heard`` has the same fields."""
    message = delivery.message
    _, event = read_event(message)
    persisted_s = None if event.persisted_at is None else event.persisted_at.timestamp()
    return [
        time.time(),
        message.message_id,
        event.run_id,
        event.run_seq,
        event.prev_seq,
        event.event_type,
        event.step_id,
        event.logical_attempt_id,
        event.plan_version,
        persisted_s,
    ]


def _alert_line(delivery: Delivery) -> list[Any]:
    return [json.loads(delivery.message.body)["alert"]]
