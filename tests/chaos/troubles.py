"""Troubles of servers and networks, each from its beginning to the moment when its cause is gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from tests.chaos.fleet import Fleet
from tests.chaos.history import Fault, Kind
from tests.chaos.plan import Trouble
from tests.chaos.weather import COMMITTED, Cut

#: A storm is so many resets of everything, this long apart.
RESETS, RESET_EVERY_S = 5, 0.1
#: How many replies to COMMIT are cut meanwhile.
CUT_SHARE = 0.2


async def make(trouble: Trouble, fleet: Fleet) -> Fault:
    """Make *trouble*, and return when its cause is gone; the fault says when that was."""
    at = time.time()
    await _MAKERS[trouble](fleet)
    kind, _, how = trouble.partition(" ")
    return Fault(kind=_KINDS[kind], how=how, at=at, over_at=time.time())


async def _crash_postgres(fleet: Fleet) -> None:
    server = fleet.servers.postgres
    await asyncio.to_thread(server.crash)
    await asyncio.to_thread(server.start)


async def _kill_postgres(fleet: Fleet) -> None:
    server = fleet.servers.postgres
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)


async def _restart_broker_app(fleet: Fleet) -> None:
    server = fleet.servers.rabbit
    await asyncio.to_thread(server.stop_app)
    await asyncio.to_thread(server.start_app)


async def _restart_broker(fleet: Fleet) -> None:
    server = fleet.servers.rabbit
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.start)


async def _kill_broker(fleet: Fleet) -> None:
    server = fleet.servers.rabbit
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)


async def _storm(fleet: Fleet) -> None:
    """Reset every connection to both servers, again and again, and cut replies to COMMIT in between."""
    networks = fleet.networks
    await networks["postgres"].cut(Cut(direction="down", pattern=COMMITTED, probability=CUT_SHARE))
    for _ in range(RESETS):
        for network in networks.values():
            await network.reset()
        await asyncio.sleep(RESET_EVERY_S)
    await networks["postgres"].mend()


_KINDS: dict[str, Kind] = {"postgres": "postgres", "broker": "broker", "network": "network"}
_MAKERS: dict[Trouble, Callable[[Fleet], Awaitable[None]]] = {
    "postgres crash": _crash_postgres,
    "postgres kill": _kill_postgres,
    "broker app": _restart_broker_app,
    "broker restart": _restart_broker,
    "broker kill": _kill_broker,
    "network storm": _storm,
}
