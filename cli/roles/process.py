"""One process with its roles: reaches its store and broker, works until it is told to stop, and leaves.

A process that a supervisor started says how it is over its link, and leaves banner, health and second signals
to the supervisor.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tidewheel.broker.opening import open_broker
from tidewheel.broker.protocol import Broker
from tidewheel.broker.topology import work_queue
from tidewheel.cli import output
from tidewheel.cli.connecting import opened_store
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.roles.banner import Banner, Contents
from tidewheel.cli.roles.charge import REPORT_S, Link
from tidewheel.cli.roles.reaching import Patience, ToldToStop
from tidewheel.sdk.settings import ConnectionSettings
from tidewheel.store.protocol import Store
from tidewheel.workers.config import DEFAULT_QUEUE, Address
from tidewheel.workers.health import OK, Health, broker_answers, store_answers
from tidewheel.workers.health_server import HealthServer
from tidewheel.workers.process import Role, end_at_once, release_the_dead, running, until_told_to_stop

logger = logging.getLogger("tidewheel.process")

#: How long an idle thread may take to end.
THREAD_TIMEOUT_S: Final = 0.5

#: Makes the roles over an open store and broker; what else has to be well is added to the health.
Made = Callable[[Store, Broker, Health], Sequence[Role]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a process is to do."""

    settings: ConnectionSettings
    roles: Made
    banner: Banner
    contents: Contents | None
    queues: tuple[str, ...] = ()
    connect_timeout_s: float = 0.0
    health_at: Address | None = None
    auto_migrate: bool = False
    #: Whether it gives up workers of this host that ended, when it begins: not everybody may.
    releases_the_dead: bool = True
    as_json: bool = False
    #: To the supervisor, if there is one.
    link: Link | None = None


async def work(plan: Plan) -> None:
    """Do what *plan* says until told to stop."""
    # Signals are heard from here on: one that comes while everything starts is not lost.
    told_again = end_at_once if plan.link is None else _leave_it_to_the_supervisor
    told = asyncio.create_task(until_told_to_stop(told_again))
    await asyncio.sleep(0)
    health = Health()
    patience = Patience(plan.connect_timeout_s, told, health)
    servers = [] if plan.health_at is None else [HealthServer(plan.health_at, health)]
    try:
        async with (
            running(servers),
            _reporting(plan.link, health),
            _opened(plan, patience) as (store, broker),
        ):
            await _work(plan, store, broker, health, told)
    except ToldToStop:
        pass
    finally:
        told.cancel()
        await asyncio.gather(told, return_exceptions=True)
    logger.info("stopped")


async def _work(plan: Plan, store: Store, broker: Broker, health: Health, told: asyncio.Future[None]) -> None:
    dead = await release_the_dead(store) if plan.releases_the_dead else []
    if dead:
        logger.info("takes over from workers of this host that ended: %s", ", ".join(dead))
    queue = plan.queues[0] if plan.queues else DEFAULT_QUEUE
    health.require("store", store_answers(store, plan.settings.namespace))
    health.require("broker", broker_answers(broker, plan.settings.namespace, queue))
    async with running(plan.roles(store, broker, health)):
        health.begin()
        if plan.link is None:
            plan.banner.show(plan.contents, as_json=plan.as_json)
        else:
            await asyncio.to_thread(plan.link.announce, plan.contents)
        await told
        health.drain()
        second = "" if plan.link is not None else "; a second signal ends at once"
        logger.info("stopping: finishes or hands back what is in hand%s", second)


def _leave_it_to_the_supervisor() -> None:
    """Whoever tells all processes to stop tells this one twice: directly, and through its supervisor."""


@contextlib.asynccontextmanager
async def _opened(plan: Plan, patience: Patience) -> AsyncIterator[tuple[Store, Broker]]:
    settings = plan.settings
    async with contextlib.AsyncExitStack() as opened:
        store = await patience.reach(
            "store", lambda: opened_store(settings, create=True, auto_migrate=plan.auto_migrate)
        )
        opened.push_async_callback(store.close)
        broker = open_broker(settings.broker, store_url=settings.store)
        opened.push_async_callback(broker.close)
        # Opening connects to nothing; asking does.
        await patience.reach("broker", lambda: broker.depth(work_queue(settings.namespace, DEFAULT_QUEUE)))
        yield store, broker


@contextlib.asynccontextmanager
async def _reporting(link: Link | None, health: Health) -> AsyncIterator[None]:
    """Say how this process is, while the block lasts."""
    if link is None:
        yield
        return
    task = asyncio.create_task(_report_for_ever(link, health), name="tidewheel-reports")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _report_for_ever(link: Link, health: Health) -> None:
    while True:
        found = (await health.ready()).checks if link.looks else {}
        link.report({name: text for name, text in found.items() if text != OK})
        await asyncio.sleep(REPORT_S)


def leave_stuck_threads() -> None:
    """End the process now if a plain function did not come back within the grace.

    Python waits for all threads when it ends, and there is nothing left to wait for: the step was
    handed back.
    """
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("tidewheel-task")]
    for thread in threads:
        thread.join(THREAD_TIMEOUT_S)
    if any(thread.is_alive() for thread in threads):
        output.close()
        os._exit(ExitCode.OK)
