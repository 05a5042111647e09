"""Runs the suite over every broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.broker.harness import Place
from tidewheel.broker.protocol import Broker
from tidewheel.broker.topology import Queue, Topology


@pytest.fixture(params=["memory", "embedded", "rabbitmq"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Somewhere with queues, for each kind of broker."""
    made = Place(_url(request, tmp_path))
    yield made
    await made.close()


@pytest.fixture(params=["embedded", "rabbitmq"])
async def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Somewhere with queues that other processes reach too."""
    made = Place(_url(request, tmp_path))
    yield made
    await made.close()


def _url(request: pytest.FixtureRequest, folder: Path) -> str:
    """Return where a broker of the kind *request* asks for has nothing in it yet."""
    match request.param:
        case "rabbitmq":
            return str(request.getfixturevalue("fresh_rabbitmq"))
        case "embedded":
            return f"embedded:///{folder}/queues.db"
        case _:
            return "memory://"


@pytest.fixture
async def broker(place: Place) -> Broker:
    """A connection, with a queue ``work`` and its dead letters."""
    connected = await place.connect()
    work = Queue(name="work", delivery_limit=2, dead_letter_queue="work.dlq")
    await connected.declare(Topology(queues=(work, Queue(name="work.dlq"), Queue(name="plain"))))
    return connected
