"""What is made when it is first asked for: once, for all who ask."""

from __future__ import annotations

import asyncio

import pytest

from tidewheel.sdk.on_demand import OnDemand


class Maker:
    """Makes numbers when its gate is open, or fails."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.begun = 0
        self.problem: Exception | None = None
        self.on_demand = OnDemand(self.make, name="making")

    async def make(self) -> int:
        """Make the next number."""
        self.begun += 1
        await self.gate.wait()
        if self.problem is not None:
            raise self.problem
        return self.begun


@pytest.fixture
async def maker() -> Maker:
    """Nothing was made yet."""
    return Maker()


async def test_nothing_is_made_before_somebody_asks(maker: Maker) -> None:
    """And to take what there is makes nothing either."""
    before = (maker.on_demand.peek(), maker.on_demand.was_asked_for, await maker.on_demand.take())

    assert before == (None, False, None)
    assert maker.begun == 0


async def test_all_who_ask_get_the_same(maker: Maker) -> None:
    """Those who come while it is made wait for it together."""
    asking = [asyncio.create_task(maker.on_demand.get()) for _ in range(5)]
    await asyncio.sleep(0)
    maker.gate.set()

    assert await asyncio.gather(*asking) == [1] * 5
    assert (await maker.on_demand.get(), maker.on_demand.peek(), maker.begun) == (1, 1, 1)


async def test_a_failure_is_shared_and_the_next_who_asks_tries_again(maker: Maker) -> None:
    """It was asked for all the same."""
    maker.gate.set()
    maker.problem = LookupError("away")
    failures = await asyncio.gather(*(maker.on_demand.get() for _ in range(2)), return_exceptions=True)
    after_failure = (maker.on_demand.peek(), maker.on_demand.was_asked_for)
    maker.problem = None

    assert [str(failure) for failure in failures] == ["away"] * 2
    assert after_failure == (None, True)
    assert await maker.on_demand.get() == 2


async def test_whoever_stops_waiting_does_not_stop_the_others(maker: Maker) -> None:
    """Being cancelled while it is made costs the others nothing."""
    one, other = (asyncio.create_task(maker.on_demand.get()) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.wait([one])
    maker.gate.set()

    assert (await other, maker.begun) == (1, 1)


async def test_taking_it_ends_an_attempt(maker: Maker) -> None:
    """Whoever waits is told, and nothing was made."""
    asking = asyncio.create_task(maker.on_demand.get())
    await asyncio.sleep(0)

    assert await maker.on_demand.take() is None
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_what_was_made_is_taken_by_whoever_closes_it(maker: Maker) -> None:
    """Also twice."""
    maker.gate.set()
    await maker.on_demand.get()

    assert [await maker.on_demand.take(), await maker.on_demand.take()] == [1, 1]


async def test_what_is_there_need_not_be_made() -> None:
    """It counts as asked for: somebody made it."""
    there = OnDemand.having("it")

    assert (await there.get(), there.peek(), await there.take(), there.was_asked_for) == (
        "it",
        "it",
        "it",
        True,
    )
