"""Publishing with confirms: everything is sent at once, up to a bound, and then waited for together.

Each message is mandatory, and persistent unless it need not last. The broker answers each with an ack when
its queues have it, or with a nack; one that no queue takes it returns first. Answers come in any order and
for many at a time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from aiormq.abc import AbstractChannel

from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.message import Publication
from tidewheel.broker.protocol import Untaken
from tidewheel.broker.rabbitmq.connection import Connection, our_errors
from tidewheel.broker.rabbitmq.control import Control, look_for_exchange
from tidewheel.broker.rabbitmq.frames import (
    BASIC_ACK,
    BASIC_NACK,
    BASIC_RETURN,
    BODY,
    CHANNEL_CLOSE,
    HEADER,
    PublicationWriter,
    Returned,
    read_closing,
    read_confirm,
    read_header,
    read_return,
)

#: How many messages may wait for their confirms. More than this wait before they are sent.
IN_FLIGHT_MAX: Final = 500
#: How many bytes are given to the socket at a time.
CHUNK_MAX: Final = 64 * 1024


class _Batch:
    """The messages of one call, and what is known of them."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        #: Those that were not taken, by their place in the call.
        self.untaken: dict[int, Untaken] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle_one(self) -> None:
        self.waiting -= 1
        if not self.waiting and not self.done.done():
            self.done.set_result(None)

    def fail(self, error: BrokerUnavailable) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # whoever was waiting may have left


class _Sent(NamedTuple):
    """A message on its way, and whose it is."""

    publication: Publication
    batch: _Batch
    place: int


class Publisher:
    """A channel that only publishes. It hears the answers of the broker to what was sent on it."""

    def __init__(self, connection: Connection, channel: AbstractChannel) -> None:
        self._connection = connection
        self._channel = channel
        self._lane = connection.lane
        self._control = Control(connection)
        #: Exchanges that were there: publishing to one that is not costs the channel.
        self._exchanges = {""}
        self._writer = PublicationWriter(channel.number, connection.frame_max)
        self._in_flight: OrderedDict[int, _Sent] = OrderedDict()
        self._tag = 0
        #: What was published is in order, so whoever publishes takes turns.
        self._turn = asyncio.Lock()
        self._room = asyncio.Event()
        #: The address of the message that is being returned, and the tags of all that were.
        self._returned: Returned | None = None
        self._returned_tags: set[int] = set()
        self._failure: BrokerUnavailable | None = None

    @classmethod
    async def open(cls, connection: Connection) -> Publisher:
        """Open a channel whose publications are confirmed."""
        channel = await connection.open_channel()
        publisher = cls(connection, channel)
        with our_errors(connection.address):
            async with asyncio.timeout(connection.address.patience.answer_s):
                await channel.confirm_delivery()
        connection.lane.listen(channel.number, publisher)
        return publisher

    @property
    def blocked(self) -> str | None:
        """Why the broker takes nothing now; None if it does."""
        return self._lane.blocked

    @property
    def is_usable(self) -> bool:
        """Whether it can publish, as far as is known."""
        return self._failure is None and self._connection.gone is None

    async def offer(self, publications: Sequence[Publication]) -> list[Untaken | None]:
        """Return what became of each when the broker has answered to all; the caller bounds the wait."""
        await self._look_for_exchanges({publication.exchange for publication in publications})
        routable = [(place, one) for place, one in enumerate(publications) if one.exchange in self._exchanges]
        batch = _Batch(len(routable))
        if routable:
            await self._lane.unblocked.wait()
            async with self._turn:
                await self._send(routable, batch)
            await batch.done
        if len(routable) == len(publications) and not batch.untaken:
            return [None] * len(publications)
        sent = dict(routable)
        return [
            batch.untaken.get(place) if place in sent else "unroutable" for place in range(len(publications))
        ]

    async def _look_for_exchanges(self, names: set[str]) -> None:
        for name in names - self._exchanges:
            if await self._control.exists(partial(look_for_exchange, name=name)):
                self._exchanges.add(name)

    async def _send(self, publications: Sequence[tuple[int, Publication]], batch: _Batch) -> None:
        # All are written before any is sent: what cannot be written is refused as a whole.
        written = [self._writer.frames(publication) for _, publication in publications]
        chunk: list[bytes] = []
        size = 0
        for (place, publication), frames in zip(publications, written, strict=True):
            if size >= CHUNK_MAX or len(self._in_flight) >= IN_FLIGHT_MAX:
                self._lane.write(b"".join(chunk))
                chunk, size = [], 0
                await self._wait_for_room()
            if self._failure is not None:
                raise self._failure
            self._tag += 1
            self._in_flight[self._tag] = _Sent(publication, batch, place)
            chunk.append(frames)
            size += len(frames)
        self._lane.write(b"".join(chunk))
        await self._lane.drain()

    async def _wait_for_room(self) -> None:
        await self._lane.drain()
        while len(self._in_flight) >= IN_FLIGHT_MAX and self._failure is None:
            self._room.clear()
            await self._room.wait()

    # Called by the lane

    def hear(self, kind: int, payload: bytes) -> bool:
        """Take an answer of the broker."""
        if kind == HEADER and self._returned is not None:
            self._note_returned(self._returned, read_header(payload).message_id)
            return True
        if kind in (HEADER, BODY):
            return self._returned is not None
        method = payload[:4]
        if method in (BASIC_ACK, BASIC_NACK):
            self._note_confirmed(*read_confirm(payload), refused=method == BASIC_NACK)
            return True
        if method == BASIC_RETURN:
            self._returned = read_return(payload)
            return True
        if method == CHANNEL_CLOSE:
            self.lost(read_closing(payload).text)
        return False

    def lost(self, why: str) -> None:
        """Fail everything that is on its way: nobody knows what became of it."""
        self._failure = BrokerUnavailable(f"{self._connection.address.shown}: {why}")
        self._lane.leave(self._channel.number, self)
        in_flight, self._in_flight = self._in_flight, OrderedDict()
        for sent in in_flight.values():
            sent.batch.fail(self._failure)
        self._room.set()

    def _note_confirmed(self, tag: int, multiple: bool, *, refused: bool) -> None:  # noqa: FBT001 - as read
        tags = [tag]
        if multiple:
            tags = []
            for earlier in self._in_flight:
                if earlier > tag:
                    break
                tags.append(earlier)
        for one in tags:
            sent = self._in_flight.pop(one, None)
            self._returned_tags.discard(one)
            if sent is not None:
                if refused:
                    sent.batch.untaken[sent.place] = "refused"
                sent.batch.settle_one()
        self._room.set()

    def _note_returned(self, returned: Returned, message_id: str) -> None:
        """Find whose message came back. Returns come in the order of sending, before the confirm."""
        for tag, (publication, batch, place) in self._in_flight.items():
            if (
                publication.message.message_id == message_id
                and (publication.exchange, publication.routing_key) == returned
                and tag not in self._returned_tags
            ):
                self._returned_tags.add(tag)
                batch.untaken[place] = "unroutable"
                return
