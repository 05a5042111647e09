"""Fixtures that give tests a Postgres store: a database with the schema in it, and nothing else."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.servers.databases import create_database, drop_database
from tidewheel.store.migrations import migrate


@pytest.fixture(scope="session")
def journal_template(postgres_server: str) -> Iterator[str]:
    """The name of a database with the schema: to copy it is quicker than to migrate each one."""
    name = f"tw_template_{secrets.token_hex(6)}"
    migrate(create_database(postgres_server, name))
    yield name
    drop_database(postgres_server, name)


@pytest.fixture
def journals(postgres_server: str, journal_template: str) -> Iterator[str]:
    """The URL of an empty Postgres store of the test's own."""
    name = f"tw_{secrets.token_hex(6)}"
    yield create_database(postgres_server, name, journal_template)
    drop_database(postgres_server, name)
