"""An open connection: aio-pika's, over a lane of ours. Opening it, its channels, and what its errors mean.

Every wait is bounded here, and every error leaves as one sentence that names the broker and not the
password.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import aio_pika
from aio_pika.abc import AbstractChannel as ControlChannel
from aiormq.abc import AbstractChannel
from aiormq.connection import TransportFactory
from aiormq.exceptions import (
    AMQPConnectionError,
    AMQPError,
    AuthenticationError,
    ChannelAccessRefused,
    ChannelClosed,
    ConnectionClosed,
    IncompatibleProtocolError,
    ProbableAuthenticationError,
)

from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.rabbitmq.address import Address
from tidewheel.broker.rabbitmq.lane import Lane

#: How long letting go of a connection may take before it is cut.
CLOSE_MAX_S: Final = 2.0
_REPLY_SUCCESS: Final = 200
_NOT_LET_IN: Final = (AuthenticationError, ProbableAuthenticationError)
#: AMQP's code for what the broker does not allow, as a vhost that is not there.
_NOT_ALLOWED: Final = 530

_log = logging.getLogger("tidewheel.broker")


class Connection:
    """An open connection with its lane; ``open_connection`` makes one."""

    def __init__(self, address: Address, purpose: str, opened: aio_pika.Connection, lane: Lane) -> None:
        self.address = address
        self.purpose = purpose
        self.lane = lane
        self._opened = opened
        assert opened.transport is not None
        raw = self._raw = opened.transport.connection
        #: How long a frame may be, as agreed with the broker.
        self.frame_max: int = raw.connection_tune.frame_max or 131_072

    @property
    def gone(self) -> str | None:
        """Why it is gone; None while it is not."""
        return self.lane.gone

    @property
    def server(self) -> str:
        """What the broker calls itself."""
        properties = self._raw.server_properties
        return f"{properties.get('product')!s} {properties.get('version')!s}"

    async def open_control(self) -> ControlChannel:
        """Open a channel for declarations and questions."""
        with our_errors(self.address):
            channel = self._opened.channel(publisher_confirms=False)
            await channel.initialize(timeout=self.address.patience.answer_s)
            return channel

    async def open_channel(self) -> AbstractChannel:
        """Open a channel for messages, whose frames go over the lane."""
        with our_errors(self.address):
            async with asyncio.timeout(self.address.patience.answer_s):
                return await self._raw.channel(publisher_confirms=False)

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[AbstractChannel]:
        """Return a block with a channel that is closed at its end."""
        channel = await self.open_channel()
        try:
            yield channel
        finally:
            await close_channel(channel)

    async def close(self) -> None:
        """Say good-bye, and cut it if that takes long."""
        if self.lane.gone is None:
            with suppress(Exception):
                async with asyncio.timeout(CLOSE_MAX_S):
                    # With a reason: else whoever waits for an answer gets an exception of no class at all.
                    await self._opened.close(
                        ConnectionClosed(_REPLY_SUCCESS, "the connection was closed here")
                    )
        self.lane.abort("the connection was closed")
        await self.lane.closed()


async def close_channel(channel: AbstractChannel | ControlChannel) -> None:
    """Close *channel* within bounds; one that is closed already stays so."""
    with suppress(Exception):
        async with asyncio.timeout(CLOSE_MAX_S):
            await channel.close(ChannelClosed(_REPLY_SUCCESS, "the channel was closed here"))


async def open_connection(address: Address, purpose: str) -> Connection:
    """Connect within bounds, or raise ``BrokerUnavailable``. The broker shows the *purpose*."""
    with our_errors(address):
        async with asyncio.timeout(address.patience.connect_s):
            lane = await _dial(address)
            try:
                opened = await _shake_hands(address, purpose, lane)
            except BaseException as error:
                lane.abort("the broker did not let us in")
                if lane.closing is None or isinstance(error, _NOT_LET_IN):
                    raise
                raise ConnectionClosed(*lane.closing) from error
    return Connection(address, purpose, opened, lane)


async def _dial(address: Address) -> Lane:
    loop = asyncio.get_running_loop()
    _, lane = await loop.create_connection(
        lambda: Lane(loop, address.patience.heartbeat_s),
        address.host,
        address.port,
        ssl=address.tls.context() if address.tls else None,
    )
    return lane


class _Opened(aio_pika.Connection):
    """aio-pika's, which is ended by ours alone."""

    def __del__(self) -> None:
        """Do nothing: a lost one would begin to close itself, in whatever loop there is, or in none."""


async def _shake_hands(address: Address, purpose: str, lane: Lane) -> aio_pika.Connection:
    connection = _Opened(
        address.for_aio_pika,
        client_properties={"connection_name": f"{address.name} {purpose}", "product": "tidewheel"},
    )
    # What aio-pika does not read from the URL goes on to aiormq, which opens the socket.
    connection.kwargs["transport_factory"] = _Dialed(lane)
    await connection.connect()
    return connection


class _Dialed(TransportFactory):
    """Gives aiormq the lane for a socket."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    async def create(self, *_: Any, **__: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return what is connected already, whatever aiormq made of the address."""
        return self._lane.reader, self._lane.writer


@contextmanager
def our_errors(address: Address, doing: str = "") -> Iterator[None]:
    """Turn what goes wrong on the wire into ``BrokerUnavailable``; *doing* says at what."""
    where = f"{address.shown}, {doing}" if doing else address.shown
    try:
        yield
    except (AMQPError, OSError, TimeoutError, RuntimeError, asyncio.InvalidStateError) as error:
        raise BrokerUnavailable(f"{where}: {_sentence(address, error)}") from error
    except asyncio.CancelledError:
        # aiormq cancels what waits for an answer when a connection ends. To whoever waits that must not
        # look like having been cancelled: it would end for ever what is to try again.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise BrokerUnavailable(f"{where}: the connection was lost") from None
    except Exception as error:
        # It also ends them with an exception of no class at all, where it has no reason at hand.
        if type(error) is not Exception:
            raise
        raise BrokerUnavailable(f"{where}: the connection was lost") from None


def _sentence(address: Address, error: BaseException) -> str:  # noqa: PLR0911 - one for each thing that happens
    """Say what *error* means, and what to do about it."""
    match error:
        case ProbableAuthenticationError() | AuthenticationError():
            if address.external:
                return (
                    "it does not take the certificate for a user; see its log and rabbitmq_auth_mechanism_ssl"
                )
            return f"it refuses the user {address.user!r}: the name or the password is wrong"
        case ConnectionClosed() if error.args and error.args[0] == _NOT_ALLOWED:
            return f"it does not let {address.user!r} into the vhost {address.vhost!r}: {_text(error)}"
        case ChannelAccessRefused():
            return f"the permissions of {address.user!r} do not allow it: {_text(error)}"
        case IncompatibleProtocolError():
            return "something else answers there, which does not speak AMQP 0-9-1"
        case ssl.SSLCertVerificationError():
            return f"its certificate cannot be trusted ({error.verify_message}); give the right cafile"
        case ssl.SSLError():
            return f"no encryption could be agreed on ({error.reason or error}); is that port for amqps?"
        case TimeoutError():
            return "it did not answer in time"
        case ConnectionRefusedError():
            return "nothing listens there"
        case socket.gaierror():
            return f"the host {address.host!r} is not known ({error.strerror})"
        case AMQPConnectionError() if isinstance(
            error.__cause__, asyncio.IncompleteReadError | ConnectionError
        ):
            return "it closed the connection without a word"
        case _:
            return _text(error)


def _text(error: BaseException) -> str:
    """Return the broker's own words."""
    words = [str(argument) for argument in error.args if isinstance(argument, str) and argument]
    return words[-1] if words else (str(error) or type(error).__name__)
