"""Where the servers of the tests come from: a URL that was given, else binaries, else packages.

A URL in the environment is used and never stopped. Without one a private server is started, from the
binaries of this host. Where there are none, root on Debian or Ubuntu gets the packages, without any service
being started; anybody else is told which command to run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tests.servers.postgres import PrivatePostgres
from tests.servers.rabbitmq import PrivateRabbit

POSTGRES = "TIDEWHEEL_TEST_POSTGRES"
RABBITMQ = "TIDEWHEEL_TEST_RABBITMQ"
#: The socket of a private node, where virtual hosts are made; only beside a URL of ours.
CONTROL = "TIDEWHEEL_TEST_RABBITMQ_CONTROL"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provided:
    """A server that can be used: what it is, for people, and how tests find it."""

    what: str
    variables: Mapping[str, str]


@contextmanager
def provide_postgres(say: Say) -> Iterator[Provided]:
    """A Postgres server for as long as the context lasts."""
    given = os.environ.get(POSTGRES)
    if given:
        yield Provided(what=f"Postgres as given in {POSTGRES}", variables={POSTGRES: given})
        return
    with PrivatePostgres() as server:
        yield Provided(what=f"private Postgres on port {server.port}", variables={POSTGRES: server.url})


@contextmanager
def provide_rabbitmq(say: Say) -> Iterator[Provided]:
    """A RabbitMQ node for as long as the context lasts."""
    given = os.environ.get(RABBITMQ)
    if given:
        yield Provided(what=f"RabbitMQ as given in {RABBITMQ}", variables={RABBITMQ: given})
        return
    with PrivateRabbit() as node:
        yield Provided(
            what=f"private RabbitMQ on port {node.port}",
            variables={RABBITMQ: node.url, CONTROL: str(node.control)},
        )
