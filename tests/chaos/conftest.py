"""Servers, fleets and clients for the tests of this tier. Whatever is killed here is private."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.chaos.fleet import Fleet, Servers, fleet_on
from tests.chaos.forms import is_in_form
from tests.chaos.storm import client_of
from tests.servers import provision
from tests.servers.fixtures import _or_skipped
from tests.servers.postgres import PrivatePostgres
from tests.servers.rabbitmq import PrivateRabbit
from tidewheel.sdk.client import Client

#: A killed process loses nothing that it wrote, on a disk or in memory; memory is faster.
_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there

_numbers = itertools.count(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what belongs to the long form, unless that is wanted."""
    left_out = [item for item in items if not is_in_form(item)]
    items[:] = [item for item in items if is_in_form(item)]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the test's own, gone when it is over."""
    made = Path(tempfile.mkdtemp(prefix="tidewheel-", dir=_MEMORY if _MEMORY.is_dir() else None))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[PrivatePostgres]:
    """A Postgres server that the tests of this tier share; whoever ends it starts it again."""
    with _or_skipped(request, provision.POSTGRES), PrivatePostgres() as server:
        yield server


@pytest.fixture(scope="session")
def rabbit(request: pytest.FixtureRequest) -> Iterator[PrivateRabbit]:
    """A RabbitMQ node that the tests of this tier share; whoever ends it starts it again."""
    with _or_skipped(request, provision.RABBITMQ), PrivateRabbit() as node:
        yield node


@pytest.fixture
def servers(postgres: PrivatePostgres, rabbit: PrivateRabbit) -> Servers:
    """Both."""
    return Servers(postgres, rabbit)


@pytest.fixture
async def fleet(servers: Servers, folder: Path) -> AsyncIterator[Fleet]:
    """A fleet without workers, with a database and a virtual host of its own."""
    async with fleet_on(servers, folder, name=f"fleet{next(_numbers)}") as made:
        yield made


@pytest.fixture
async def client(fleet: Fleet) -> AsyncIterator[Client]:
    """A client of the fleet that has no trouble with its networks."""
    async with client_of(fleet.direct) as made:
        yield made
