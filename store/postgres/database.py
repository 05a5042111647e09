"""Connections to Postgres: SQLAlchemy's engine and pool, psycopg's connections.

A connection that failed is thrown away, and with it the idle ones: after a restart of the server they are all
dead. So of a restart a caller sees one lost connection at most, and a read sees none.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar

import psycopg
from psycopg.adapt import AdaptersMap
from sqlalchemy import event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from tidewheel.store.errors import StoreUnavailable
from tidewheel.store.postgres.arrays import teach
from tidewheel.store.postgres.config import PostgresConfig
from tidewheel.store.postgres.faults import is_lost

T = TypeVar("T")


class Database:
    """One database, for one event loop."""

    def __init__(self, url: str, config: PostgresConfig) -> None:
        self.config = config
        parsed = make_url(url)
        #: What only the connections of this store are called.
        self.name = f"tidewheel {secrets.token_hex(4)}"
        self.shown = shown(parsed)
        self._url = parsed
        self._engine = _engine(parsed, config, self.name)
        event.listen(self._engine.sync_engine, "connect", self._note_birth)
        event.listen(self._engine.sync_engine, "checkout", self._check_birth)
        #: Rises with each connection that fails: those that were opened before are not used again.
        self.generation = 0
        self._turns = asyncio.Semaphore(config.connections_max - 1)
        #: Connections that nobody has now. They stay taken from the pool, whose own way of lending is dear;
        #: there are never more than turns.
        self._idle: list[Lent] = []
        #: Exchanges that were given up on; they end by themselves once their connection is closed.
        self._abandoned: set[asyncio.Task[Any]] = set()

    @contextlib.asynccontextmanager
    async def lend(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Lend a connection, in autocommit mode; after an error that leaves it unusable it is thrown away.

        They are lent in the order in which they are asked for. One is left for who takes it for good.
        """
        await self._wait_for_turn(self._turns)
        try:
            lent = await self._take_idle()
            try:
                yield lent.connection
            except BaseException as error:
                await asyncio.shield(self.throw_away(lent, error))
                raise
            self._idle.append(lent)
        finally:
            self._turns.release()

    async def take(self) -> Lent:
        """Take a connection for good; whoever has it gives it back, throws it away or loses it."""
        generation = self.generation
        lent = await self._engine.connect()
        raw = await lent.get_raw_connection()
        connection = raw.driver_connection
        assert isinstance(connection, psycopg.AsyncConnection)
        return Lent(lent, connection, generation)

    def lose(self, lent: Lent) -> None:
        """A connection that was taken for good is gone: those of its age are not used again either."""
        self.generation += 1
        self._abandon(asyncio.ensure_future(_thrown_away(lent)))

    async def throw_away(self, lent: Lent, error: BaseException) -> None:
        """Give back a connection that *error* may have left in the middle of something."""
        await self._spoil(lent, error)
        await lent.give_back()

    async def _wait_for_turn(self, turns: asyncio.Semaphore) -> None:
        """Take one of *turns*, which has to be released."""
        if not turns.locked():
            await turns.acquire()  # comes at once, and needs no timer
            return
        limit = self.config.pool_timeout_s
        try:
            async with asyncio.timeout(limit):
                await turns.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                f"{self.shown}: all connections of this process were in use for {limit:g} s; "
                "nothing was written"
            ) from None

    async def _take_idle(self) -> Lent:
        while self._idle:
            lent = self._idle.pop()
            if lent.generation == self.generation:
                return lent
            await asyncio.shield(lent.give_back())
        return await self.take()

    async def _spoil(self, lent: Lent, error: BaseException) -> None:
        """See to it that a connection is not used again that *error* has left in the middle of something."""
        connection = lent.connection
        if is_lost(error) or isinstance(error, asyncio.CancelledError):
            # Those that others have now are looked at when they are lent again, as the idle ones are.
            self.generation += 1
            await lent.invalidate()
        elif connection.closed or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            await lent.invalidate()

    def _note_birth(self, connection: Any, record: Any) -> None:
        teach(connection.driver_connection.adapters)
        record.info["generation"] = self.generation

    def _check_birth(self, _connection: Any, record: Any, _lent: Any) -> None:
        """Have a connection replaced that is as old as one that failed."""
        if record.info["generation"] != self.generation:
            raise DisconnectionError

    async def timed(
        self, connection: psycopg.AsyncConnection[Any], work: Awaitable[T], seconds: float | None = None
    ) -> T:
        """Wait for an exchange, but not for ever, in a task that nobody cancels; else see ``bounded``.

        One that takes too long loses its connection, and ends by that.
        """
        limit = self.config.exchange_timeout_s if seconds is None else seconds
        is_late = False

        def give_up() -> None:
            nonlocal is_late
            is_late = True
            hang_up(connection)

        timer = asyncio.get_running_loop().call_later(limit, give_up)
        try:
            return await work
        except psycopg.Error as error:
            if is_late:
                raise TimeoutError(f"no answer within {limit:g} s") from error
            raise
        finally:
            timer.cancel()

    async def bounded(
        self,
        connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any],
        work: Awaitable[T],
        seconds: float | None = None,
    ) -> T:
        """Wait for an exchange, but not for ever; one that is given up on loses its connection.

        The driver would ask the server to stop, over a network that may be gone. Here the socket is
        shut down.
        """
        task = asyncio.ensure_future(work)
        limit = self.config.exchange_timeout_s if seconds is None else seconds
        try:
            done, _ = await asyncio.wait([task], timeout=limit)
        except asyncio.CancelledError:
            self._abandon(task)
            raise
        if done:
            return task.result()
        self._abandon(task)
        hang_up(connection)
        raise TimeoutError(f"no answer within {limit:g} s")

    def _abandon(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.discard(task)
        if not task.cancelled():
            task.exception()

    def step_arguments(self) -> dict[str, Any]:
        """Return how to connect for a transactional step."""
        arguments = _arguments(self._url, self.config, self.config.step_options(), self.name)
        return {**_libpq_arguments(self._url), **arguments, "context": _taught()}

    async def close(self) -> None:
        """Close all connections; what was taken for good was given back before. May be called twice."""
        if self._abandoned:
            await asyncio.wait(self._abandoned)
        while self._idle:
            await self._idle.pop().give_back()
        await self._engine.dispose()


class Lent:
    """A connection that was taken from the pool."""

    def __init__(
        self, pooled: AsyncConnection, connection: psycopg.AsyncConnection[Any], generation: int
    ) -> None:
        self._pooled = pooled
        self.connection = connection
        #: What the generation was when it was taken.
        self.generation = generation

    async def invalidate(self) -> None:
        """Have it thrown away."""
        with contextlib.suppress(Exception):
            await self._pooled.invalidate()

    async def give_back(self) -> None:
        """Let the pool have it."""
        await self._pooled.close()


async def _thrown_away(lent: Lent) -> None:
    await lent.invalidate()
    await lent.give_back()


def hang_up(connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> None:
    """Shut the socket of *connection* down: whoever waits for it is told at once."""
    with contextlib.suppress(OSError, psycopg.Error):
        twin = socket.socket(fileno=socket.dup(connection.fileno()))
        with twin:
            twin.shutdown(socket.SHUT_RDWR)


def shown(url: URL) -> str:
    """Name the database, without a user's name and password."""
    where = url.host or url.query.get("host") or "local socket"
    port = f":{url.port}" if url.port else ""
    return f"Postgres database {url.database or 'of the user'!r} at {where}{port}"


def _engine(url: URL, config: PostgresConfig, name: str) -> AsyncEngine:
    return create_async_engine(
        url.set(drivername="postgresql+psycopg"),
        connect_args=_arguments(url, config, config.server_options(), name),
        isolation_level="AUTOCOMMIT",
        use_native_hstore=False,  # or every new connection would ask for a type that we do not use
        pool_size=config.connections_max,
        max_overflow=0,
        pool_timeout=config.pool_timeout_s,
    )


def _arguments(url: URL, config: PostgresConfig, options: str, name: str) -> dict[str, Any]:
    """Return what libpq is told beside the URL; what the URL says itself comes last, and counts."""
    asked = url.query.get("options", "")
    mine: dict[str, Any] = {
        "connect_timeout": max(2, round(config.connect_timeout_s)),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": round(config.exchange_timeout_s * 1000),
    }
    said = {name: value for name, value in mine.items() if name not in url.query}
    mine_alone = {"options": f"{options} {asked}".strip(), "autocommit": True, "application_name": name}
    return said | mine_alone


def _taught() -> AdaptersMap:
    """Return what psycopg knows of types, and our arrays."""
    adapters = AdaptersMap(psycopg.adapters)
    teach(adapters)
    return adapters


def _libpq_arguments(url: URL) -> dict[str, Any]:
    """Return *url* as psycopg's own keywords."""
    given: dict[str, Any] = url.translate_connect_args(username="user", database="dbname")
    return given | dict(url.query)
