"""A pool of connections: as many as are needed at once, each for one thread, none used after it failed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kombu.transport import memory

from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.kombu_pool import WirePool
from tidewheel.broker.kombu_wire import Target, Wire
from tidewheel.journal.errors import InvalidRequest

MemoryTransport: Any = memory.Transport


class Transport(MemoryTransport):  # type: ignore[misc]  # kombu is not typed here
    """Kombu's own memory transport, whose connections are counted and can be refused."""

    opened = 0
    closed = 0
    is_down = False

    def establish_connection(self) -> Any:
        """Connect, unless it is down."""
        if Transport.is_down:
            raise ConnectionRefusedError("nobody listens")
        Transport.opened += 1
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Disconnect."""
        Transport.closed += 1
        super().close_connection(connection)


@pytest.fixture(autouse=True)
def _counting() -> Iterator[None]:
    Transport.opened = Transport.closed = 0
    Transport.is_down = False
    yield
    assert Transport.closed == Transport.opened


@pytest.fixture
async def pool() -> Any:
    """A pool of three."""
    made = WirePool(Target(transport=f"{__name__}:Transport", wires_max=3))
    yield made
    await made.close()


def fails(*errors: Exception) -> Callable[[Wire], int]:
    """Return work that fails with each of *errors*, then says how often it was begun."""
    begun = 0

    def work(_: Wire) -> int:
        nonlocal begun
        begun += 1
        if begun <= len(errors):
            raise errors[begun - 1]
        return begun

    return work


def nothing(_: Wire) -> None:
    """Be done at once."""


async def test_one_connection_serves_all_who_come_one_after_another(pool: WirePool) -> None:
    """Nobody pays for a connection that somebody else has made and does not use now."""
    wires = [await pool.do(lambda wire: wire) for _ in range(5)]

    assert len(set(wires)) == 1
    assert Transport.opened == 1


async def test_those_who_come_at_once_get_one_each_up_to_the_bound(pool: WirePool) -> None:
    """Three are at work at a time, each alone on its connection; the others wait for a thread."""
    all_three = threading.Barrier(3)

    def work(wire: Wire) -> Wire:
        all_three.wait(30)
        return wire

    wires = await asyncio.gather(*(pool.do(work) for _ in range(6)))

    assert len(set(wires[:3])) == 3
    assert set(wires) == set(wires[:3])
    assert Transport.opened == 3


async def test_a_connection_that_failed_is_not_used_again(pool: WirePool) -> None:
    """Whoever comes next gets a new one."""
    with pytest.raises(BrokerUnavailable, match="no such luck"):
        await pool.do(fails(ConnectionResetError("no such luck")))
    closed = Transport.closed

    await pool.do(nothing)

    assert (closed, Transport.opened) == (1, 2)


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), BrokenPipeError("gone"), EOFError("gone")])
async def test_a_connection_lost_while_it_was_idle_costs_its_user_nothing(
    pool: WirePool, error: Exception
) -> None:
    """The broker was restarted meanwhile: the work is done over a new connection."""
    await pool.do(nothing)

    assert await pool.do(fails(error)) == 2
    assert Transport.opened == 2


@pytest.mark.parametrize("error", [TimeoutError("too long"), AttributeError("a bug")])
async def test_what_a_new_connection_would_not_mend_is_not_tried_again(
    pool: WirePool, error: Exception
) -> None:
    """A broker that did not answer in time has had its time; a driver's bug is no mistake of the caller's."""
    await pool.do(nothing)

    with pytest.raises(BrokerUnavailable, match=str(error)):
        await pool.do(fails(error))
    assert Transport.opened == 1


async def test_work_is_done_again_once_and_not_for_ever(pool: WirePool) -> None:
    """Where the new connection fails too, whoever asked is told."""
    await pool.do(nothing)

    with pytest.raises(BrokerUnavailable, match="second"):
        await pool.do(fails(ConnectionResetError("first"), ConnectionResetError("second")))


async def test_a_broker_that_is_back_is_connected_to_at_the_next_use(pool: WirePool) -> None:
    """Nothing has to be told that it is back."""
    Transport.is_down = True
    with pytest.raises(BrokerUnavailable, match="nobody listens"):
        await pool.do(nothing)
    Transport.is_down = False

    await pool.do(nothing)

    assert Transport.opened == 1


async def test_whoever_gives_up_while_waiting_for_a_thread_does_not_begin(pool: WirePool) -> None:
    """A hint that nobody waits for any more is not published behind everybody's back."""
    gate = threading.Event()
    busy = [asyncio.ensure_future(pool.do(lambda _: gate.wait(30))) for _ in range(3)]
    begun: list[Wire] = []
    waiting = asyncio.ensure_future(pool.do(begun.append))
    await asyncio.sleep(0)

    waiting.cancel()
    await asyncio.wait([waiting])
    gate.set()
    await asyncio.gather(*busy)
    await pool.do(nothing)

    assert waiting.cancelled()
    assert begun == []


async def test_closing_waits_for_what_is_under_way_and_refuses_the_rest(pool: WirePool) -> None:
    """Every connection is closed, the one in use as soon as it is not."""
    is_begun, gate = threading.Event(), threading.Event()

    def work(_: Wire) -> str:
        is_begun.set()
        gate.wait(30)
        return "done"

    await asyncio.gather(*(pool.do(nothing) for _ in range(2)))
    working = asyncio.ensure_future(pool.do(work))
    await asyncio.get_running_loop().run_in_executor(None, is_begun.wait)

    closing = asyncio.ensure_future(pool.close())
    await asyncio.sleep(0)
    with pytest.raises(BrokerUnavailable, match="was closed"):
        await pool.do(nothing)
    gate.set()
    await closing
    await pool.close()

    assert await working == "done"
    assert Transport.closed == Transport.opened


async def test_what_is_refused_while_declaring_is_the_callers_mistake(pool: WirePool) -> None:
    """It is not tried again, and says so."""
    from amqp.exceptions import PreconditionFailed  # type: ignore[import-untyped]  # no types

    refuse = fails(PreconditionFailed("other arguments"))

    with pytest.raises(InvalidRequest, match="other arguments"):
        await pool.do(refuse, declaring=True)
