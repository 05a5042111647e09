"""Where the servers of the tests come from: a URL that was given, else binaries, else packages.

A URL in the environment is used and never stopped. Without one a private server is started, from the
binaries of this host. Where there are none, root on Debian or Ubuntu gets the packages, without any service
being started; anybody else is told which command to run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from tests.servers import packages
from tests.servers.packages import Say
from tests.servers.postgres import PrivatePostgres
from tests.servers.rabbitmq import PrivateRabbit

POSTGRES = packages.POSTGRES.variable
RABBITMQ = packages.RABBITMQ.variable
#: Where virtual hosts are made: the socket of a private node, or the management interface of a given one.
CONTROL = "TIDEWHEEL_TEST_RABBITMQ_CONTROL"
MANAGEMENT = "TIDEWHEEL_TEST_RABBITMQ_MANAGEMENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provided:
    """A server that can be used: what it is, for people, and how tests find it."""

    what: str
    variables: Mapping[str, str]


Provide: TypeAlias = Callable[[Say], AbstractContextManager[Provided]]


def offers(environment: Mapping[str, str]) -> dict[str, Provide]:
    """Return what a test may ask for, by name."""
    return {
        "postgres": partial(_postgres, environment),
        "rabbitmq": partial(_rabbitmq, environment),
    }


@contextmanager
def _postgres(environment: Mapping[str, str], say: Say) -> Iterator[Provided]:
    """A Postgres server for as long as the context lasts."""
    given = environment.get(POSTGRES)
    if given:
        yield Provided(what=f"Postgres as given in {POSTGRES}", variables={POSTGRES: given})
        return
    packages.ensure(packages.POSTGRES, say)
    with PrivatePostgres() as server:
        yield Provided(what=f"private Postgres on port {server.port}", variables={POSTGRES: server.url})


@contextmanager
def _rabbitmq(environment: Mapping[str, str], say: Say) -> Iterator[Provided]:
    """A RabbitMQ node for as long as the context lasts."""
    given = environment.get(RABBITMQ)
    if given:
        found = {name: environment[name] for name in (CONTROL, MANAGEMENT) if name in environment}
        yield Provided(what=f"RabbitMQ as given in {RABBITMQ}", variables={RABBITMQ: given, **found})
        return
    packages.ensure(packages.RABBITMQ, say)
    with PrivateRabbit() as node:
        yield Provided(
            what=f"private RabbitMQ on port {node.port}",
            variables={RABBITMQ: node.url, CONTROL: str(node.control)},
        )
