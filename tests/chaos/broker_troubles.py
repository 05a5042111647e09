"""Troubles of a broker, made and mended by a test while a fleet uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

from tests.chaos.fleet import Fleet
from tests.chaos.weather import Weather

Trouble: TypeAlias = Callable[[Fleet], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def memory_alarm(fleet: Fleet) -> AsyncIterator[None]:
    """Let the broker think that it has no memory left: it blocks those who publish (18)."""
    fleet.servers.rabbit.raise_memory_alarm()
    try:
        yield
    finally:
        fleet.servers.rabbit.clear_memory_alarm()


@asynccontextmanager
async def black(fleet: Fleet) -> AsyncIterator[None]:
    """Let everything vanish that is sent to the broker or by it (17)."""
    await fleet.networks["broker"].weather(Weather(is_black=True))
    try:
        yield
    finally:
        await fleet.networks["broker"].mend()


@asynccontextmanager
async def refused(fleet: Fleet) -> AsyncIterator[None]:
    """Let nobody reach the broker (12)."""
    await fleet.networks["broker"].refuse()
    await fleet.networks["broker"].reset()
    try:
        yield
    finally:
        await fleet.networks["broker"].accept()
