"""What a client of Postgres sees where the reply to its COMMIT never comes: the truth of driver and proxy.

Everything that the store does about such commits rests on this.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import psycopg
import pytest

from tests.chaos.proxy import Proxy, proxy_before
from tests.chaos.weather import COMMITTED, Cut
from tests.servers.postgres import PrivatePostgres

COMMITS = 100


class Line(NamedTuple):
    """A database, and a troubled way to it."""

    direct: str
    network: Proxy

    @property
    def url(self) -> str:
        """The database by the troubled way."""
        return self.network.url(self.direct)


@pytest.fixture
async def line(postgres: PrivatePostgres) -> AsyncIterator[Line]:
    """A table of numbers behind a proxy."""
    with psycopg.connect(postgres.url) as connection:
        connection.execute("DROP TABLE IF EXISTS number")
        connection.execute("CREATE TABLE number (n integer NOT NULL)")
    async with proxy_before(postgres.port, seed=1) as network:
        yield Line(postgres.url, network)


async def insert(url: str, number: int, *, pipeline: bool) -> None:
    """Write *number* and commit, alone or with everything in one round trip."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        if pipeline:
            async with connection.pipeline():
                await connection.execute("BEGIN")
                await connection.execute("INSERT INTO number VALUES (%s)", (number,))
                await connection.execute("COMMIT")
        else:
            await connection.execute("BEGIN")
            await connection.execute("INSERT INTO number VALUES (%s)", (number,))
            await connection.execute("COMMIT")


def numbers(line: Line) -> list[int]:
    """Read what is committed."""
    with psycopg.connect(line.direct) as connection:
        return [number for (number,) in connection.execute("SELECT n FROM number ORDER BY n")]


@pytest.mark.parametrize("pipeline", [False, True], ids=["one by one", "in a pipeline"])
async def test_the_client_sees_an_error_and_the_row_is_there(line: Line, pipeline: bool) -> None:
    """Every time: an error after COMMIT says nothing about the commit (31)."""
    await line.network.cut(Cut(direction="down", pattern=COMMITTED))

    for number in range(COMMITS):
        with pytest.raises(psycopg.OperationalError):
            await insert(line.url, number, pipeline=pipeline)

    assert numbers(line) == list(range(COMMITS))
    assert (await line.network.counts())["cuts"] == COMMITS


async def test_some_replies_are_cut(line: Line) -> None:
    """With a probability: those that came through said the truth, and so did nobody else."""
    await line.network.cut(Cut(direction="down", pattern=COMMITTED, probability=0.5))
    failed = 0

    for number in range(COMMITS):
        try:
            await insert(line.url, number, pipeline=False)
        except psycopg.OperationalError:
            failed += 1

    assert numbers(line) == list(range(COMMITS))
    assert failed == (await line.network.counts())["cuts"]
    assert 20 < failed < 80


async def test_a_commit_that_is_cut_on_its_way_there_is_not_made(line: Line) -> None:
    """The same error for the client, and the row is not there."""
    await line.network.cut(Cut(direction="up", pattern=b"COMMIT"))

    with pytest.raises(psycopg.OperationalError):
        await insert(line.url, 1, pipeline=False)

    assert numbers(line) == []
