"""From flags, the environment and defaults to an open store, broker and client.

A command that only looks does not make a store where there is none: who runs it in the wrong
folder is told so, and no empty file is left behind.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from tidewheel.broker.opening import open_broker
from tidewheel.broker.protocol import Broker
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.failure import Failure
from tidewheel.sdk import telling
from tidewheel.sdk.client import Client
from tidewheel.sdk.connection import Connection
from tidewheel.sdk.limits import Limits
from tidewheel.sdk.on_demand import OnDemand
from tidewheel.sdk.settings import ConnectionSettings
from tidewheel.sdk.store_settings import PostgresSettings
from tidewheel.store.opening import open_store
from tidewheel.store.protocol import Store
from tidewheel.store.urls import SqliteUrl, parse_url
from tidewheel.telemetry import switch


@dataclass(frozen=True, slots=True)
class Where:
    """What the flags say of where everything is; None where they say nothing."""

    store: str | None = None
    broker: str | None = None
    namespace: str | None = None

    def settings(self) -> ConnectionSettings:
        """Return the flags, then the environment, then the defaults."""
        for flag, value in (("store", self.store), ("broker", self.broker), ("namespace", self.namespace)):
            if value is not None and not value.strip():
                message = f"--{flag} is empty"
                raise Failure.invalid(message, f"leave it out, or see what TIDEWHEEL_{flag.upper()} may be")
        return ConnectionSettings.from_environment(
            store=self.store, broker=self.broker, namespace=self.namespace
        )


@dataclass(frozen=True, slots=True)
class Link:
    """An open client, and what it was made of."""

    settings: ConnectionSettings
    store: Store
    broker: Broker
    connection: Connection
    client: Client


@contextlib.asynccontextmanager
async def stored(where: Where, *, create: bool = False) -> AsyncIterator[tuple[Store, str]]:
    """Open the store alone, for commands that need no broker; also give the namespace."""
    settings = where.settings()
    store = await opened_store(settings, create=create)
    try:
        yield store, settings.namespace
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def linked(where: Where, *, create: bool = False) -> AsyncIterator[Link]:
    """Open the store and a client of it. A broker that is away only makes things slower."""
    settings = where.settings()
    limits = Limits.from_environment()
    async with contextlib.AsyncExitStack() as opened:
        if switch.active is None and telling.turn_on("tidewheel-client"):
            opened.callback(switch.turn_off)
        store = await opened_store(settings, create=create)
        opened.push_async_callback(store.close)
        broker = open_broker(settings.broker, store_url=settings.store)
        opened.push_async_callback(broker.close)
        connection = Connection(
            OnDemand.having(store),
            broker,
            settings.namespace,
            limits=limits,
            now=await store.now(),
            token_bytes=secrets.token_bytes,
        )
        opened.push_async_callback(connection.close)
        yield Link(settings, store, broker, connection, Client(connection))


async def opened_store(settings: ConnectionSettings, *, create: bool, auto_migrate: bool = False) -> Store:
    """Open the store; without *create* it has to be there.

    A store of an older release is left as it is unless *auto_migrate*: others may be working with it.
    """
    if not create:
        require_store(settings)
    postgres = PostgresSettings.from_environment().config()
    return await open_store(settings.store, auto_migrate=auto_migrate, postgres=postgres)


def require_store(settings: ConnectionSettings) -> None:
    """Refuse to go on where there is no store."""
    parsed = parse_url(settings.store)
    if isinstance(parsed, SqliteUrl) and _is_missing(parsed.path):
        message = f"there is no store at {located(settings.store)}"
        advice = "start one with `tidewheel dev APP`, or say where it is: --store or TIDEWHEEL_STORE"
        raise Failure(message, code=ExitCode.UNREACHABLE, kind="StoreUnavailable", advice=advice)


def new_store(settings: ConnectionSettings) -> Path | None:
    """Return the file that opening the store will make; None where it is there, or is no file."""
    parsed = parse_url(settings.store)
    return parsed.path.resolve() if isinstance(parsed, SqliteUrl) and _is_missing(parsed.path) else None


def _is_missing(path: Path) -> bool:
    try:
        return not path.exists()
    except OSError:  # a folder that may not be looked into: opening the file will say so
        return False


def shown(url: str) -> str:
    """Return *url* without a user's name and password."""
    return re.sub(r"(?<=//)[^/]*@", "***@", url)


def located(url: str) -> str:
    """Return *url* as ``shown``, and the file it means where that depends on the current folder."""
    name = url.partition(":///")[2]
    if url.startswith(("sqlite:", "embedded:")) and name and not name.startswith("/"):
        return f"{shown(url)} ({Path(unquote(name)).resolve()})"
    return shown(url)
