"""Projectors over the memory twins, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from tests.unit.projector.stage import Stage
from tests.unit.sdk.twins import VirtualLoop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Let time pass at once in all tests of this folder."""
    return {"virtual-time": VirtualLoop}


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A store, a broker and no projector yet; those that are begun are stopped at the end."""
    made = Stage()
    yield made
    await made.close()
