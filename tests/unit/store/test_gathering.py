"""Questions that share an exchange: each gets its own answer, and nobody disturbs anybody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tidewheel.store.gathering import EXCHANGES_MAX, TOGETHER_MAX, Gathering


class Oracle:
    """Answers with the double of a number; a negative one has no answer. Waits until it is let go."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.may_answer = asyncio.Event()
        self.is_away = False

    async def ask(self, questions: Sequence[int]) -> Sequence[int | Exception]:
        """Answer all of *questions*."""
        self.asked.append(list(questions))
        await self.may_answer.wait()
        if self.is_away:
            raise OSError("away")
        return [ValueError(str(one)) if one < 0 else 2 * one for one in questions]


@pytest.fixture
async def oracle() -> Oracle:
    """The oracle."""
    return Oracle()


async def test_what_comes_while_others_are_answered_is_asked_together(oracle: Oracle) -> None:
    """One that comes first is asked at once; the rest share exchanges, each of a bounded size."""
    gathering = Gathering(oracle.ask)
    waiting = [asyncio.ensure_future(gathering.answer(number)) for number in range(2 * TOGETHER_MAX)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first = [*oracle.asked]

    oracle.may_answer.set()

    assert await asyncio.gather(*waiting) == [2 * number for number in range(2 * TOGETHER_MAX)]
    assert len(first) <= EXCHANGES_MAX
    assert max(map(len, oracle.asked)) <= TOGETHER_MAX
    assert len(oracle.asked) <= 1 + EXCHANGES_MAX


async def test_one_that_has_no_answer_does_not_spoil_the_others(oracle: Oracle) -> None:
    """Whoever asked it gets its error."""
    gathering = Gathering(oracle.ask)
    oracle.may_answer.set()

    found = await asyncio.gather(*map(gathering.answer, [1, -1, 2]), return_exceptions=True)

    assert (found[0], found[2]) == (2, 4)
    assert isinstance(found[1], ValueError)


async def test_an_exchange_that_fails_fails_all_who_share_it_and_no_other(oracle: Oracle) -> None:
    """The next one is asked anew."""
    gathering = Gathering(oracle.ask)
    oracle.may_answer.set()
    oracle.is_away = True
    found = await asyncio.gather(*map(gathering.answer, [1, 2]), return_exceptions=True)
    oracle.is_away = False

    assert [type(one) for one in found] == [OSError, OSError]
    assert await gathering.answer(3) == 6


async def test_who_leaves_disturbs_nobody(oracle: Oracle) -> None:
    """The others get their answers."""
    gathering = Gathering(oracle.ask)
    waiting = [asyncio.ensure_future(gathering.answer(number)) for number in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.sleep(0)

    oracle.may_answer.set()

    assert [await waiting[0], await waiting[2]] == [0, 4]


async def test_who_asks_again_the_moment_it_is_answered_is_answered_again(oracle: Oracle) -> None:
    """Though all exchanges ended in that very moment: none of them is taken for one that goes on."""
    gathering = Gathering(oracle.ask)

    async def ask_twice(number: int) -> int:
        return await gathering.answer(await gathering.answer(number))

    waiting = [asyncio.ensure_future(ask_twice(1))]
    for number in range(2, EXCHANGES_MAX + 1):
        await asyncio.sleep(0)
        waiting.append(asyncio.ensure_future(gathering.answer(number)))
    await asyncio.sleep(0.01)
    assert len(oracle.asked) == EXCHANGES_MAX

    oracle.may_answer.set()

    async with asyncio.timeout(5):
        assert await asyncio.gather(*waiting) == [4, *(2 * number for number in range(2, EXCHANGES_MAX + 1))]
