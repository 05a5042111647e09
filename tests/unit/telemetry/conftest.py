"""Telemetry that is on for the length of a test, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from tests.unit.sdk.twins import VirtualLoop
from tests.unit.telemetry.recording import Recording
from tests.unit.workers.house import House
from tidewheel.telemetry import switch


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Let time pass at once in all tests of this folder."""
    return {"virtual-time": VirtualLoop}


@pytest.fixture
def recording() -> Iterator[Recording]:
    """Telemetry that is on, and keeps what it is told."""
    made = Recording()
    switch.turn_on(made.recorder)
    yield made
    switch.turn_off()


@pytest.fixture
async def house() -> AsyncIterator[House]:
    """An empty house; whatever is begun in it is stopped at the end."""
    made = House()
    yield made
    await made.close()
