"""Workers, keepers and a client over the memory twins, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from tests.unit.sdk.twins import VirtualLoop
from tests.unit.workers.house import House
from tests.unit.workers.postbox import Postbox


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Let time pass at once in all tests of this folder."""
    return {"virtual-time": VirtualLoop}


@pytest.fixture
async def house() -> AsyncIterator[House]:
    """An empty house; whatever is begun in it is stopped at the end."""
    made = House()
    yield made
    await made.close()


@pytest.fixture
def postbox(house: House) -> Postbox:
    """Where anybody puts commands for the workers of the house."""
    return Postbox(house)
