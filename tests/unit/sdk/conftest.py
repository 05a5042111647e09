"""Fixtures for the tests of the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from tests.unit.sdk.twins import Broker, Store, VirtualLoop
from tidewheel import Client
from tidewheel.broker.topology import work_topology


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Let time pass at once in all tests of this folder."""
    return {"virtual-time": VirtualLoop}


@pytest.fixture
def store() -> Store:
    """A store in memory."""
    return Store()


@pytest.fixture
async def broker() -> Broker:
    """A broker in memory that has the default work queue."""
    made = Broker()
    await made.declare(work_topology("default", ["default"]))
    made.published.clear()
    return made


@pytest.fixture
async def client(store: Store, broker: Broker) -> AsyncIterator[Client]:
    """A client of both."""
    async with await Client.connect(store, broker) as connected:
        yield connected
