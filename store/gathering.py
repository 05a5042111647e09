"""Questions that come while others are being answered share the next exchange.

One that comes alone is asked at once; under load many are asked together, which costs hardly more than one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")

#: Questions in one exchange, and exchanges at a time: one that takes long does not hold up all others.
TOGETHER_MAX = 100
EXCHANGES_MAX = 2


class Gathering(Generic[Q, A]):
    """*ask* answers several questions in their order; one that has no answer is answered by its error."""

    def __init__(self, ask: Callable[[Sequence[Q]], Awaitable[Sequence[A | Exception]]]) -> None:
        self._ask = ask
        self._waiting: deque[tuple[Q, asyncio.Future[A]]] = deque()
        self._exchanges: set[asyncio.Task[None]] = set()

    async def answer(self, question: Q) -> A:
        """Return the answer to *question*. Being cancelled here disturbs nobody else."""
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if len(self._exchanges) < EXCHANGES_MAX:
            self._exchanges.add(asyncio.create_task(self._exchange(), name="tidewheel-gathering"))
        return await future

    async def _exchange(self) -> None:
        try:
            await self._answer_all()
        finally:
            # Here, and not by a callback later: who asks in between would take this one for one that goes on.
            task = asyncio.current_task()
            assert task is not None
            self._exchanges.discard(task)

    async def _answer_all(self) -> None:
        while self._waiting:
            count = min(TOGETHER_MAX, len(self._waiting))
            group = [self._waiting.popleft() for _ in range(count)]
            try:
                answers = await self._ask([question for question, _ in group])
            except BaseException as error:  # noqa: BLE001 - whatever it is, all who wait have to hear of it
                answers = [
                    error if isinstance(error, Exception) else RuntimeError("the store was closed")
                ] * count
            for (_, future), answer in zip(group, answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
