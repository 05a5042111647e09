"""Fixtures that give tests their servers.

``postgres_url``, ``fresh_postgres``, ``rabbitmq_url`` and ``fresh_rabbitmq`` are on servers that all tests
share: those given in the environment, or private ones that the session starts when the first test asks.
``own_postgres`` and ``own_rabbit`` are always private, and may be crashed and killed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import pytest

from tests.servers import provision
from tests.servers.databases import create_database, drop_database
from tests.servers.desk import Desk, RemoteDesk
from tests.servers.packages import NoServer
from tests.servers.places import ServerTrouble
from tests.servers.postgres import PrivatePostgres
from tests.servers.rabbitmq import PrivateRabbit
from tests.servers.vhosts import VirtualHosts


class _Offers(Protocol):
    """Gives servers by name."""

    def get(self, name: str) -> Mapping[str, str]: ...


_OFFERS = pytest.StashKey[_Offers]()
#: The environment as the session began: tests change theirs.
_ENVIRONMENT = pytest.StashKey[Mapping[str, str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Open the desk of this session, or find that of the process that runs this one."""
    environment = config.stash[_ENVIRONMENT] = dict(os.environ)
    given = getattr(config, "workerinput", None)
    if given is not None:
        config.stash[_OFFERS] = RemoteDesk(given["servers"])
        return
    desk = Desk(provision.offers(environment), partial(_say, config))
    config.stash[_OFFERS] = desk
    config.add_cleanup(lambda: desk.__exit__(None, None, None))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Tell a process of pytest-xdist where the desk is."""
    config, given = node.config, node.workerinput  # type: ignore[attr-defined]  # xdist has no types
    given["servers"] = config.stash[_OFFERS].address


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> str:
    """The URL of the Postgres server that tests share, as an account that may create databases."""
    return _get(request, "postgres")[provision.POSTGRES]


@pytest.fixture(scope="session")
def postgres_url(postgres_server: str) -> Iterator[str]:
    """A database of this test process's own, for the whole session."""
    yield from database_at(postgres_server)


@pytest.fixture
def fresh_postgres(postgres_server: str) -> Iterator[str]:
    """An empty database of the test's own."""
    yield from database_at(postgres_server)


@pytest.fixture
def own_postgres(request: pytest.FixtureRequest) -> Iterator[PrivatePostgres]:
    """A Postgres server of the test's own, which it may crash and kill."""
    with _or_skipped(request, provision.POSTGRES), PrivatePostgres() as server:
        yield server


@pytest.fixture(scope="session")
def vhosts(request: pytest.FixtureRequest) -> VirtualHosts:
    """The virtual hosts of the RabbitMQ node that tests share."""
    found = _get(request, "rabbitmq")
    return VirtualHosts(
        found[provision.RABBITMQ],
        control=found.get(provision.CONTROL),
        management=found.get(provision.MANAGEMENT),
    )


@pytest.fixture(scope="session")
def rabbitmq_url(vhosts: VirtualHosts) -> Iterator[str]:
    """A virtual host of this test process's own, for the whole session."""
    yield from vhost_at(vhosts)


@pytest.fixture
def fresh_rabbitmq(vhosts: VirtualHosts) -> Iterator[str]:
    """An empty virtual host of the test's own."""
    yield from vhost_at(vhosts)


@pytest.fixture(scope="module")
def _own_rabbit(request: pytest.FixtureRequest) -> Iterator[PrivateRabbit]:
    """A node takes five seconds to start, so a module has one."""
    with _or_skipped(request, provision.RABBITMQ), PrivateRabbit() as node:
        yield node


@pytest.fixture
def own_rabbit(_own_rabbit: PrivateRabbit) -> PrivateRabbit:
    """A RabbitMQ node of the module's own, which a test may kill: it runs, and its virtual host is empty."""
    _own_rabbit.renew()
    return _own_rabbit


def _get(request: pytest.FixtureRequest, name: str) -> Mapping[str, str]:
    try:
        return request.config.stash[_OFFERS].get(name)
    except ServerTrouble as trouble:
        pytest.fail(str(trouble), pytrace=False)


@contextmanager
def _or_skipped(request: pytest.FixtureRequest, variable: str) -> Iterator[None]:
    """Skip a test for want of a private server only where the other tests use one that was given."""
    try:
        yield
    except NoServer as trouble:
        if request.config.stash[_ENVIRONMENT].get(variable):
            pytest.skip(f"needs a server that may be killed, which the one in {variable} may not: {trouble}")
        pytest.fail(str(trouble), pytrace=False)


def database_at(server: str) -> Iterator[str]:
    """Yield the URL of a new database at *server*, and drop it in the end."""
    name = f"tw_{secrets.token_hex(6)}"
    yield create_database(server, name)
    drop_database(server, name)


def vhost_at(vhosts: VirtualHosts) -> Iterator[str]:
    """Yield the URL of a new virtual host, and delete it in the end."""
    name = f"tw-{secrets.token_hex(6)}"
    yield vhosts.create(name)
    vhosts.delete(name)


def _say(config: pytest.Config, line: str) -> None:
    """Write *line* to the terminal, past what pytest captures."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        config.get_terminal_writer().line(line)
