"""Runs the suite over every broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.broker.harness import Place
from tidewheel.broker.protocol import Broker
from tidewheel.broker.topology import Queue, Topology


@pytest.fixture(params=["memory", "embedded", "rabbitmq", "pyamqp"])
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
        case "pyamqp":
            return str(request.getfixturevalue("fresh_rabbitmq")).replace("amqp://", "pyamqp://", 1)
        case "rabbitmq":
            return str(request.getfixturevalue("fresh_rabbitmq"))
        case "embedded":
            return f"embedded:///{folder}/queues.db"
        case _:
            return "memory://"


def pytest_configure(config: pytest.Config) -> None:
    """Know the mark of tests that need what not every broker has."""
    config.addinivalue_line(
        "markers", "needs(ability): fails over brokers that lack it, and says so in lacks"
    )


@pytest.fixture
async def broker(request: pytest.FixtureRequest, place: Place) -> Broker:
    """A connection, with a queue ``work`` and its dead letters.

    A test that needs what the broker says it lacks has to fail: else the broker has it, and is too modest.
    """
    connected = await place.connect()
    for mark in request.node.iter_markers("needs"):
        if mark.args[0] in connected.lacks:
            request.applymarker(
                pytest.mark.xfail(reason=f"it lacks {mark.args[0]!r}", raises=(AssertionError, TimeoutError))
            )
    work = Queue(name="work", delivery_limit=2, dead_letter_queue="work.dlq")
    await connected.declare(Topology(queues=(work, Queue(name="work.dlq"), Queue(name="plain"))))
    return connected
